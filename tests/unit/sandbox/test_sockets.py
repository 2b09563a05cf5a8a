"""Who listens on a socket with a path."""

from pathlib import Path

from hermes.sandbox.sockets import listening

TABLE = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 100 /home/u/engine.sock
0000000000000000: 00000003 00000000 00000000 0001 03 101 /home/u/connected.sock
0000000000000000: 00000002 00000000 00000000 0002 01 102 /var/lib/x/letters
0000000000000000: 00000002 00000000 00010000 0001 01 103 /run/docker.sock
0000000000000000: 00000002 00000000 00010000 0001 01 104 @/abstract
0000000000000000: 00000002 00000000 00010000 0005 01 105 /home/u/with a space
0000000000000000: 00000002 00000000 00010000 0001 01 106
"""


def test_those_that_take_connections_or_letters(tmp_path: Path):
    table = tmp_path / "unix"
    table.write_text(TABLE)
    wanted = ["/home/u/engine.sock", "/var/lib/x/letters", "/home/u/with a space"]
    assert listening(str(table)) == wanted
    assert listening(str(tmp_path / "none")) == []


def test_each_of_them_however_many_there_are(tmp_path: Path):
    line = "0000000000000000: 00000002 00000000 00010000 0001 01 100 /home/u/{}.sock"
    table = tmp_path / "unix"
    table.write_text("\n".join(["head", *(line.format(number) for number in range(5_000))]))
    assert len(listening(str(table))) == 5_000

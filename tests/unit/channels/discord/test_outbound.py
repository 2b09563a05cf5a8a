"""The files of a post to Discord."""

import pytest

from hermes.channels.discord.outbound import MAX_FILE_BYTES, with_files
from hermes.ports.channel import Attachment, NotSent
from hermes.schema.messages import Media


def test_files_of_a_message_are_limited_together() -> None:
    """Discord, resources/message: "The maximum request size when sending a message is 25 MiB" """
    half = bytes(MAX_FILE_BYTES // 2)
    file = Attachment(Media("digest", "application/octet-stream", "a.bin"), len(half))
    fields, uploads = with_files({"content": ""}, [(file, half), (file, half)])
    assert len(uploads) == 2
    with pytest.raises(NotSent, match="24 MiB together"):
        with_files(fields, [(file, half), (file, half), (file, b"x")])

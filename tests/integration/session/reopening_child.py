"""Go on with a session in a process of its own, and write down the request that was made.

usage: reopening_child.py <folder> <session> <file>
"""

import sys
from pathlib import Path

import anyio

from support.compaction import long_session, request_body


async def main(folder: Path, session: str, file: Path) -> None:
    async with long_session(folder) as harness:
        await harness.conversation.resume(session)
        await harness.submit("Where were we?")
        file.write_bytes(request_body(harness.model.asked[0]))


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))

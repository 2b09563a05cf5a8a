"""Which files are documents whose words can be made out."""

from pathlib import PurePath

_OFFICE = {".docx": "docx", ".docm": "docx", ".xlsx": "xlsx", ".xlsm": "xlsx", ".pptx": "pptx"}


def document_kind(path: PurePath, head: bytes) -> str:
    """By its first bytes, and for those that all begin alike by its name; empty for others."""
    suffix = path.suffix.lower()
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return _OFFICE.get(suffix, "")
    return "ipynb" if suffix == ".ipynb" and head.lstrip().startswith(b"{") else ""

"""The lines of a diff get the numbers they have in the files."""

from hermes.kit.numbered_diff import numbered_diff

TWO_FILES = """\
diff --git a/x b/x
--- a/x
+++ b/x
@@ -9,4 +9,3 @@ def f():
 one
--- two
-
+zwei
 three
@@ -120 +119,0 @@
-gone
\\ No newline at end of file
diff --git a/y b/y
--- a/y
+++ b/y
@@ -0,0 +1,3 @@
+++ plus

+last

New files:
+ z.txt"""


def shown(diff: str) -> list[str]:
    return [line.gutter + line.text for line in numbered_diff(diff)]


def test_lines_have_numbers_and_headings_have_none() -> None:
    assert shown(TWO_FILES) == [
        "diff --git a/x b/x",
        "--- a/x",
        "+++ b/x",
        "  9  one",
        " 10 --- two",
        " 11 -",
        " 10 +zwei",
        " 11  three",
        "  ⋮",
        "120 -gone",
        "    \\ No newline at end of file",
        "diff --git a/y b/y",
        "--- a/y",
        "+++ b/y",
        "  1 +++ plus",
        "  2  ",
        "  3 +last",
        "",
        "New files:",
        "+ z.txt",
    ]


def test_lines_of_files_have_a_sign() -> None:
    lines = {line.text: line.sign for line in numbered_diff(TWO_FILES)}
    assert [lines[text] for text in ("--- two", "+++ plus", " one")] == ["-", "+", " "]
    assert {lines[text] for text in ("--- a/x", "+++ b/y", "+ z.txt", "⋮")} == {""}


def test_text_without_hunks_is_unchanged() -> None:
    text = "diff --git a/p.png b/p.png\nBinary files a/p.png and b/p.png differ"
    assert "\n".join(shown(text)) == text

"""Settings of nbgrader; `make assignments` copies them into a course folder.

Two things differ from what nbgrader does by itself.

* A test cell fails if, and only if, it raises. nbgrader alone also fails a cell
  that prints a warning, though all asserts passed in Colab.
* Feedback shows no hidden test, and nothing that one of them printed. nbgrader
  alone puts both on the page.
"""

import html
import re

from nbformat.v4 import new_output
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution

HIDDEN = re.compile(
    r"^[ \t]*#+ *BEGIN HIDDEN TESTS *\n.*?^[ \t]*#+ *END HIDDEN TESTS *(\n|\Z)",
    flags=re.DOTALL | re.MULTILINE,
)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class KeepErrorsOnly(NbGraderPreprocessor):
    """Take all outputs but errors from test cells, before they are marked."""

    def preprocess_cell(self, cell, resources, index):
        """Return the cell, with its errors only if it is a test."""
        is_test = is_grade(cell) and not is_solution(cell)
        if cell.cell_type == "code" and is_test:
            cell.outputs = [
                output
                for output in cell.outputs
                if output.output_type == "error"
            ]
        return cell, resources


class HideHiddenTests(NbGraderPreprocessor):
    """Take hidden tests, and outputs that show one, from a feedback page."""

    def preprocess(self, notebook, resources):
        """Return the notebook as a student may see it."""
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        tests = [cell for cell in cells if HIDDEN.search(cell.source)]
        hidden = {
            line.strip()
            for cell in tests
            for block in HIDDEN.finditer(cell.source)
            for line in block.group().splitlines()
        }
        for cell in tests:
            cell.outputs = [say_what_failed(cell, out) for out in cell.outputs]
            cell.source = HIDDEN.sub("", cell.source).rstrip("\n")
        shown = {
            line.strip() for cell in cells for line in cell.source.splitlines()
        }
        secrets = [line for line in hidden - shown if len(line) > 10]
        for cell in cells:
            cell.outputs = [hold_back(out, secrets) for out in cell.outputs]
        return notebook, resources


def say_what_failed(cell, output):
    """Return the error of a test cell, as far as a student may know it."""
    if output.output_type != "error":  # marked without KeepErrorsOnly
        return new_output("stream", text="")
    hidden_from = cell.source[: HIDDEN.search(cell.source).start()].count("\n")
    text = COLOUR.sub("", "\n".join(output.traceback))
    frames = re.findall(r"Cell In\[(\d+)\], line (\d+)", text)
    lines = [int(line) for n, line in frames if int(n) == cell.execution_count]
    if lines and lines[0] <= hidden_from:
        shown = cell.source.splitlines()[lines[0] - 1]
        name, words = output.ename, output.evalue
        traceback = [f"line {lines[0]}: {shown}", f"{name}: {words}"]
    else:
        name, words = "Hidden test", "a test that is not shown here failed"
        traceback = [f"{name}: {words}"]
    return new_output("error", ename=name, evalue=words, traceback=traceback)


def hold_back(output, secrets):
    """Return an output, or a note in its place if it shows hidden tests."""
    text = COLOUR.sub("", html.unescape(str(output)))
    if any(secret in text or repr(secret)[1:-1] in text for secret in secrets):
        return new_output("stream", text="[this output showed hidden tests]")
    return output


c = get_config()  # noqa: F821 (nbgrader defines it)
c.CourseDirectory.course_id = "multimodal-contrastive-learning"
c.Execute.timeout = 120  # seconds that one cell may take
c.Autograde.autograde_preprocessors.insert(1, KeepErrorsOnly)  # after Execute
c.GenerateFeedback.preprocessors.insert(1, HideHiddenTests)  # after GetGrades

"""Homework as nbgrader and students meet it: released, handed in, marked and given back."""

import contextlib
import html
import io
import itertools
import re
import runpy
import shutil
import subprocess
import tarfile
import time

import assignments
import matplotlib
import nbformat
import pytest
import setup_cell

ROOT = setup_cell.ROOT
SOURCES = assignments.sources(ROOT)
NAMES = [path.stem for path in SOURCES]
BOOK = "https://me.github.io/my-book"
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
SECONDS = 60  # of the processor that an assignment may take
HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)\n\s*### END HIDDEN TESTS", flags=re.DOTALL)
SOLUTION = re.compile(r"### BEGIN SOLUTION\n(.*?)\n\s*### END SOLUTION", flags=re.DOTALL)


def read(path):
    return nbformat.read(path, as_version=4)


def grading(cell):
    return cell.metadata.get("nbgrader", {})


def is_answer(cell):
    return grading(cell).get("solution", False)


def is_test(cell):
    return grading(cell).get("grade", False) and not is_answer(cell)


def wrong_solutions(name):
    """Return what wrong_solutions.py lists: cell -> (name that it defines, functions)."""
    path = ROOT / "book" / "assignments" / name / "wrong_solutions.py"
    return runpy.run_path(str(path))["WRONG_SOLUTIONS"]


def answers_with_tests(notebook):
    """Yield each code answer that is marked by tests, with the test that follows it."""
    for answer, test in itertools.pairwise(c for c in notebook.cells if c.cell_type == "code"):
        if is_test(test):
            assert is_answer(answer), f"{grading(test).grade_id} follows no answer"
            yield grading(answer).grade_id, test


def squeeze(text):
    """Drop all that HTML, ANSI colours or line ends may change."""
    text = re.sub(r"<[^>]*>|\x1b\[[0-9;]*m|\\n", "", html.unescape(text))
    return re.sub(r"[\W_]+", "", text)


def secrets(source, pattern, known):
    """Return the lines of hidden regions that are in none of the known texts, squeezed."""
    lines = {
        squeeze(line)
        for cell in source.cells
        for block in pattern.findall(cell.source)
        for line in block.splitlines()
    }
    seen = "".join(map(squeeze, known))
    return {line for line in lines if len(line) > 12 and line not in seen}


# --- what an assignment is ------------------------------------------------------------------------


@pytest.fixture(params=SOURCES, ids=NAMES)
def source(request):
    return read(request.param)


def test_shape_of_an_assignment(source):
    text = "\n".join(cell.source for cell in source.cells if cell.cell_type == "markdown")
    for part in ("**You need**", "**Time**", "**Points** 100", "An open question"):
        assert part in text, part
    points = [grading(cell).points for cell in source.cells if grading(cell).get("grade")]
    assert sum(points) == 100
    headings = re.findall(r"^## \d+\. .*\((\d+) points\)$", text, flags=re.MULTILINE)
    assert 4 <= len(headings) <= 6 and sum(map(int, headings)) == 100
    written = [cell for cell in source.cells if is_answer(cell) and cell.cell_type == "markdown"]
    assert len(written) >= 2, "a derivation and an open question"


def test_points_of_the_headings_are_those_of_the_cells(source):
    given, stated = [], []
    for cell in source.cells:
        if found := re.search(r"^## \d+\. .*\((\d+) points\)$", cell.source, flags=re.MULTILINE):
            stated.append(int(found.group(1)))
            given.append(0)
        if grading(cell).get("grade"):
            given[-1] += grading(cell).points
    assert given == stated


def test_every_answer_is_marked_out_and_every_test_hides_something(source):
    for cell in source.cells:
        assert len(SOLUTION.findall(cell.source)) == is_answer(cell), cell.source[:80]
        assert len(HIDDEN.findall(cell.source)) == is_test(cell), cell.source[:80]
    ids = [grading(cell).grade_id for cell in source.cells if grading(cell)]
    assert len(ids) == len(set(ids))


def test_three_wrong_solutions_of_every_tested_answer_are_kept(request, source):
    wrong = wrong_solutions(request.node.callspec.id)
    assert list(wrong) == [answer for answer, _ in answers_with_tests(source)]
    for _, functions in wrong.values():
        assert len(functions) >= 3
        assert all(function.__doc__ for function in functions), "what is wrong with it?"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_the_reference_passes_in_time_and_wrong_solutions_do_not(name):
    """All cells in one plain Python, each test also with every wrong answer to its task."""
    matplotlib.use("agg")
    wrong = wrong_solutions(name)
    notebook = read(ROOT / "book" / "assignments" / name / f"{name}.ipynb")
    tests = {grading(test).grade_id: answer for answer, test in answers_with_tests(notebook)}
    names, passed, seconds = {"__name__": name}, [], 0.0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        answer = tests.get(grading(cell).get("grade_id"))
        before = dict(names)
        start = time.process_time()
        exec(compile(cell.source, name, "exec"), names)
        seconds += time.process_time() - start
        if answer is None:
            continue
        defined, functions = wrong[answer]
        for function in functions:
            try:
                exec(compile(cell.source, name, "exec"), {**before, defined: function})
            except Exception:
                continue
            passed.append(f"{answer}: {function.__name__}")
    assert passed == [], "wrong solutions that pass"
    assert seconds < SECONDS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_paid_for_once(name):
    """Each answer passes its tests although all other answers are missing."""
    notebook = read(ROOT / "book" / "assignments" / name / f"{name}.ipynb")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for alone, test in answers_with_tests(notebook):
        names = {"__name__": name}
        for cell in code[: code.index(test)]:
            other = is_answer(cell) and grading(cell).grade_id != alone
            source = SOLUTION.sub("raise NotImplementedError()", cell.source)
            with contextlib.suppress(AssertionError, NameError, NotImplementedError):
                exec(compile(source if other else cell.source, name, "exec"), names)
        exec(compile(test.source, name, "exec"), names)


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/Me/my-book", "https://me.github.io/my-book"),
        ("https://github.com/me/me.github.io", "https://me.github.io"),
        ("https://github.com/owner--undecided/clip-book", None),
        ("https://git.example.org/me/book", None),
    ],
)
def test_pages_are_where_github_puts_them(tmp_path, url, address):
    config = tmp_path / "_config.yml"
    config.write_text(f"repository:\n  url: {url}\n", encoding="utf-8")
    assert assignments.published_address(tmp_path) == address
    config.write_text(
        f"repository:\n  url: {url}\nhtml:\n  baseurl: https://a.b/c/\n", encoding="utf-8"
    )
    assert assignments.published_address(tmp_path) == "https://a.b/c"


def test_links_lead_to_the_published_pages_or_name_them():
    text = "see [the loss](../../part/loss.ipynb#sec), [x](https://x.org)"
    folder, known = "book/assignments/one", {"book/part/loss"}
    assert assignments.link_to_pages(text, folder, known, BOOK) == (
        f"see [the loss]({BOOK}/book/part/loss.html#sec), [x](https://x.org)"
    )
    assert assignments.link_to_pages(text, folder, known, None) == (
        "see the loss (`book/part/loss` in the book), [x](https://x.org)"
    )
    with pytest.raises(assignments.AssignmentError, match="book/part/loss is not in _toc"):
        assignments.link_to_pages(text, folder, set(), BOOK)


# --- the way through nbgrader ---------------------------------------------------------------------


def hand_in(course, student, name, notebook):
    path = course / "submitted" / student / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


def mistaken(name, notebook):
    """Return a release with the first wrong solution of each task, and a student who pries."""
    wrong = wrong_solutions(name)
    code = (ROOT / "book" / "assignments" / name / "wrong_solutions.py").read_text("utf-8")
    for cell in notebook.cells:
        if is_answer(cell) and cell.cell_type == "code":
            cell.source = "print(In)"
            if grading(cell).grade_id in wrong:
                defined, functions = wrong[grading(cell).grade_id]
                cell.source = f"{code}\n{defined} = {functions[0].__name__}"
    return notebook


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course in which three students handed everything in, and got it back marked."""
    course = tmp_path_factory.mktemp("course")
    released = assignments.release(ROOT, course)
    api = assignments.grader(course)
    for name, path in zip(NAMES, released, strict=True):
        hand_in(course, "reference", name, read(course / "source" / name / path.name))
        hand_in(course, "empty", name, read(path))
        hand_in(course, "mistaken", name, mistaken(name, read(path)))
        for student in ("reference", "empty", "mistaken"):
            result = api.autograde(name, student)
            assert result["success"], result
        result = api.generate_feedback(name)
        assert result["success"], result
    return course


def grades(course, student, name):
    with assignments.grader(course).gradebook as gradebook:
        handed_in = gradebook.find_submission_notebook(name, name, student)
        return [
            (grade.name, grade.auto_score, grade.max_score, grade.cell.cell_type)
            for grade in handed_in.grades
        ]


def feedback(course, student, name):
    return (course / "feedback" / student / name / f"{name}.html").read_text("utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_has_full_marks(course, name):
    """What tests mark is full; what people mark waits for them."""
    notebook = read(course / "source" / name / f"{name}.ipynb")
    tested = {grading(cell).grade_id for cell in notebook.cells if is_test(cell)}
    for cell, score, most, _ in grades(course, "reference", name):
        assert score == (most if cell in tested else None), cell


@pytest.mark.parametrize("name", NAMES)
def test_the_empty_release_has_no_point(course, name):
    assert {score for _, score, *_ in grades(course, "empty", name)} == {0}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_solutions_have_no_point_in_nbgrader_either(course, name):
    notebook = read(course / "source" / name / f"{name}.ipynb")
    tested = {grading(cell).grade_id for cell in notebook.cells if is_test(cell)}
    scores = {cell: score for cell, score, *_ in grades(course, "mistaken", name)}
    assert {cell: scores[cell] for cell in tested} == dict.fromkeys(tested, 0)


@pytest.mark.parametrize("name", NAMES)
def test_case_31_the_release_holds_no_solution_and_no_hidden_test(course, name):
    source = read(course / "source" / name / f"{name}.ipynb")
    folder = course / "release" / name
    assert [path.name for path in folder.iterdir()] == [f"{name}.ipynb"]
    raw = (folder / f"{name}.ipynb").read_text("utf-8")
    assert "BEGIN" not in raw and "nbgrader_config" not in raw
    text = squeeze("\n".join(cell.source for cell in read(folder / f"{name}.ipynb").cells))
    for pattern in (SOLUTION, HIDDEN):
        found = secrets(source, pattern, [pattern.sub("", cell.source) for cell in source.cells])
        assert found and not [line for line in found if line in text]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("student", ["empty", "mistaken", "reference"])
def test_case_31_feedback_holds_no_solution_and_no_hidden_test(course, student, name):
    """Not even if a wrong answer fails a hidden test, or prints all that ran before it."""
    source = read(course / "source" / name / f"{name}.ipynb")
    handed_in = read(course / "submitted" / student / name / f"{name}.ipynb")
    own = [HIDDEN.sub("", cell.source) for cell in handed_in.cells]
    text = squeeze(feedback(course, student, name))
    for pattern in (SOLUTION, HIDDEN):
        assert not [line for line in secrets(source, pattern, own) if line in text]


@pytest.mark.parametrize("name", NAMES)
def test_feedback_says_that_a_hidden_test_failed_or_which_visible_one(course, name):
    assert "a test that is not shown here failed" in feedback(course, "mistaken", name)
    assert "NotImplementedError" in feedback(course, "empty", name)


@pytest.mark.parametrize("name", NAMES)
def test_a_release_runs_where_there_is_no_nbgrader(course, name):
    """Colab: the setup cell comes first, and tests are plain asserts."""
    notebook = read(course / "release" / name / f"{name}.ipynb")
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    address = setup_cell.address_in_config(ROOT / "_config.yml")
    assert code[0] == setup_cell.setup_cell(address)
    assert not [cell for cell in code if "nbgrader" in cell]


def test_a_second_release_keeps_what_was_handed_in(course):
    before = {name: grades(course, "reference", name) for name in NAMES}
    assignments.release(ROOT, course)
    assert {name: grades(course, "reference", name) for name in NAMES} == before


def test_the_book_has_the_teachers_page_and_no_homework(html_root):
    for folder in ("book/assignments", "_sources/book/assignments"):
        assert {path.stem for path in (html_root / folder).iterdir()} == {"teaching"}


def test_a_public_copy_leaves_the_instructor_notebooks_out(tmp_path):
    """`git archive`, which the teachers' page recommends, follows .gitattributes."""
    folder = tmp_path / "book" / "assignments"
    (folder / "one").mkdir(parents=True)
    shutil.copy(ROOT / "book" / "assignments" / ".gitattributes", folder)
    for path in (folder / "teaching.md", folder / "one" / "one.ipynb"):
        path.touch()

    def git(*arguments):
        return subprocess.run(
            ["git", *arguments], cwd=tmp_path, check=True, capture_output=True
        ).stdout

    git("init", "--quiet")
    git("add", ".")
    tree = git("write-tree").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(git("archive", tree))) as archive:
        copied = {name for name in archive.getnames() if name.endswith((".md", ".ipynb"))}
    assert copied == {"book/assignments/teaching.md"}

"""Progress bars: shown on long work, silent on short work, no burden on a notebook."""

import time
from queue import Empty

from jupyter_client.manager import start_new_kernel

from tutorials_lib import _progress
from tutorials_lib._progress import progress_bar


def test_short_work_is_silent_and_long_work_is_not(monkeypatch, capsys):
    assert list(progress_bar(range(3), show=True, desc="work")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_progress, "DELAY", 1e-3)
    for _ in progress_bar(range(3), show=True, desc="work", mininterval=0):
        time.sleep(2e-3)
    assert "work" in capsys.readouterr().err
    for _ in progress_bar(range(3), show=False, desc="work"):
        time.sleep(2e-3)
    assert capsys.readouterr().err == ""


def test_thousands_of_bars_send_a_notebook_nothing():
    """Bars made of widgets fill the kernel's queue, and the end of the cell's output is lost."""
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        code = (
            "from tutorials_lib._progress import progress_bar\n"
            "for _ in range(2000):\n    list(progress_bar(range(2), show=True))"
        )
        request = client.execute(code)
        assert client.get_shell_msg(timeout=60)["content"]["status"] == "ok"
        kinds = []
        while "idle" not in kinds:
            try:
                message = client.get_iopub_msg(timeout=20)
            except Empty:
                raise AssertionError(f"the cell never ended; it sent {len(kinds)}") from None
            if message["parent_header"].get("msg_id") == request:
                kinds.append(message["content"].get("execution_state", message["msg_type"]))
        assert kinds == ["busy", "execute_input", "idle"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

"""Serve a folder of built pages and open it in the default browser."""

import functools
import http.server
import sys
import webbrowser


def main(folder: str, port: int = 8000) -> None:
    """Serve ``folder`` on localhost until interrupted."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("localhost", port), handler) as server:
        address = f"http://localhost:{port}"
        print(f"Serving {folder} at {address} (Ctrl-C stops)")
        webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main(sys.argv[1])

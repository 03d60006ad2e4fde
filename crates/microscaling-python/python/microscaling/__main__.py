"""The command line: `microscaling`, or `python -m microscaling`."""

import signal
import sys

from . import _native


def main() -> None:
    # Ctrl-C ends the program at once, in the middle of native code, too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.main(["microscaling", *sys.argv[1:]]))


if __name__ == "__main__":
    main()

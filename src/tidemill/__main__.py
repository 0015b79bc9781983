"""Run the ``tidemill`` command with ``python -m tidemill``."""

from tidemill.cli.main import main

if __name__ == "__main__":
    main()

"""``python -m tidemill`` is the command ``tidemill``."""

from tidemill.cli.main import main

if __name__ == "__main__":
    main()

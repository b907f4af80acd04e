"""`python -m unslow` is `unslow`."""

from unslow.cli.main import main

if __name__ == "__main__":
    main()

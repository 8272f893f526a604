"""`python -m tests.docs.update` writes the pages that are made from the code."""

from tests.docs.pages import PAGES, ROOT, stale_pages


def main() -> None:
    """Write every page that is not what the code makes."""
    for name in stale_pages():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()

"""Takes the pictures of a run's page in `images/` from the page that the demo writes.

costada run circle_packing --model offline --budget 1.0 --out demo-page --quiet
python docs/page_pictures.py demo-page/report.html

Needs Chromium on the PATH.
"""

import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1200, 1080
COLORS = 128
ENDS = """() => {
  document.getElementById("bar").style.position = "static";
  const top = (id) => document.getElementById(id).getBoundingClientRect().top + window.scrollY;
  return [top("objective"), top("roles") - 40];
}"""


def save(taken: bytes, name: str) -> None:
    """Write a picture with few colours, which a page does not miss."""
    with Image.open(BytesIO(taken)) as picture:
        small = picture.convert("RGB").quantize(
            COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        small.save(IMAGES / name, optimize=True)


def take(page: Page, address: str) -> None:
    """The opening of the page, and the best objective with what the money went into."""
    page.goto(address)
    page.wait_for_selector("#table tbody tr")
    save(page.screenshot(), "report-page.png")
    top, bottom = page.evaluate(ENDS)
    clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top}
    save(page.screenshot(full_page=True, clip=clip), "report-charts.png")


if __name__ == "__main__":
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        take(
            browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light"),
            Path(sys.argv[1]).absolute().as_uri(),
        )
        browser.close()

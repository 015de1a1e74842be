"""Wheels that tests write themselves."""

import base64
from hashlib import sha256
from zipfile import ZipFile


def write_wheel(folder, name, number, files):
    """A wheel with these files; its record is what installers check."""
    about = f"{name}-{number}.dist-info"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    kind = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts = {**files, f"{about}/METADATA": head, f"{about}/WHEEL": kind}
    with ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as wheel:
        lines = []
        for path, text in texts.items():
            content = text.encode() if isinstance(text, str) else text
            digest = base64.urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(content)}")
            wheel.writestr(path, content)
        wheel.writestr(f"{about}/RECORD", "\n".join([*lines, f"{about}/RECORD,,", ""]))

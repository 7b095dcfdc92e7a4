"""What the kernel keeps of a line until it is ended, for whoever writes all of the input. Pure.

A program that reads whole lines has not seen it, and the screen hides it as soon as the program
prints something. So a look alone would take the place for empty.
"""

from typing import Final

_ENDS: Final = frozenset(b"\r\n\x04")  # Enter, end of file: the program gets the line
_FLUSHES: Final = frozenset(b"\x03\x1a\x1c\x15")  # signals, and the key that kills a line
_ERASES: Final = frozenset(b"\x7f\x08")
_ERASES_WORD: Final = 0x17


class HeldLine:
    """Follows what is typed, by the usual keys of a terminal."""

    def __init__(self) -> None:
        self._data = bytearray()

    def typed(self, data: bytes, *, canonical: bool) -> None:
        """These bytes were written. Without `canonical` the program gets them one by one."""
        if not canonical:
            self._data.clear()
            return
        for byte in data:
            if byte in _ENDS or byte in _FLUSHES:
                self._data.clear()
            elif byte in _ERASES:
                self._erase()
            elif byte == _ERASES_WORD:
                self._erase_word()
            else:
                self._data.append(byte)

    @property
    def text(self) -> str:
        return self._data.decode(errors="replace")

    def _erase(self) -> int:
        """One character; its first byte, or 0 when there is none."""
        first = 0x80
        while self._data and first & 0xC0 == 0x80:
            first = self._data.pop()
        return first if first != 0x80 else 0

    def _erase_word(self) -> None:
        """As the kernel does it: blanks and signs, then letters, by the first byte of each."""
        letters = False
        while self._data:
            before = bytes(self._data)
            first = self._erase()
            if chr(first).isalnum() or first == ord("_"):
                letters = True
            elif letters:
                self._data = bytearray(before)
                return

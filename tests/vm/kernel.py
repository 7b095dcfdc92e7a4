"""Unpacks the ELF kernel out of a bzImage, so that the emulated processor need not do it."""

import bz2
import lzma
import struct
import subprocess
import zlib

ELF = b"\x7fELF"
SETUP_SECTS_AT = 0x1F1
PAYLOAD_AT = 0x248
SECTOR_BYTES = 512
DEFAULT_SETUP_SECTS = 4
LENGTH_BYTES = 4  # of the kernel, after what is packed: one of the tools takes it for data


def unpack(image: bytes) -> bytes:
    """The uncompressed kernel. ValueError when the image is packed in a way not known here."""
    sectors = image[SETUP_SECTS_AT] or DEFAULT_SETUP_SECTS
    offset, length = struct.unpack_from("<II", image, PAYLOAD_AT)
    start = (sectors + 1) * SECTOR_BYTES + offset
    kernel = _decompress(image[start : start + length])
    if not kernel.startswith(ELF):
        raise ValueError("the kernel image does not hold an ELF kernel")
    return kernel


def _decompress(packed: bytes) -> bytes:
    if packed.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(packed)  # the kernel's length follows the stream
    if packed.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(wbits=31).decompress(packed)
    if packed.startswith(b"BZh"):
        return bz2.BZ2Decompressor().decompress(packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        return _piped(["zstd", "-dcq"], packed)
    if packed.startswith(b"\x02\x21\x4c\x18"):
        return _piped(["lz4", "-dcq"], packed[:-LENGTH_BYTES])
    raise ValueError(f"the kernel image is packed in an unknown way: {packed[:6].hex()}")


def _piped(argv: list[str], packed: bytes) -> bytes:
    return subprocess.run(argv, input=packed, stdout=subprocess.PIPE, check=True).stdout

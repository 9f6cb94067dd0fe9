"""A shard's columns by h5py alone: HDF5 has no filter for zstd (32015) unless a plugin brings one, so chunks are taken as they lie in the file and unfolded
here, as formats/shard/shard.md says. Users have `import hdf5plugin` (tests/outside/shard_hdf5plugin.py)."""
import numpy as np
import zstandard


def unfolded(column):
    """A dataset -> an array of its numbers or texts. HDF5's sums over chunks are the C program's to check."""
    if "32015" not in column._filters:
        return column[()]
    assert list(column._filters) == ["shuffle", "32015", "fletcher32"], column._filters
    out = np.empty(column.shape, column.dtype)
    for i in range(column.id.get_num_chunks()):
        first = column.id.get_chunk_info(i).chunk_offset
        _, packed = column.id.read_direct_chunk(first)
        by_byte = np.frombuffer(zstandard.decompress(packed[:-4]), "u1").reshape(column.dtype.itemsize, -1)
        chunk = np.ascontiguousarray(by_byte.T).view(column.dtype).reshape(column.chunks)
        to = out[tuple(slice(at, at + n) for at, n in zip(first, column.chunks))]
        to[...] = chunk[tuple(slice(n) for n in to.shape)]
    return out


class File:
    """An h5py.File whose columns are such arrays."""

    def __init__(self, path):
        import h5py
        self.file = h5py.File(path)
        self.attrs = self.file.attrs

    def __getitem__(self, name):
        return unfolded(self.file[name])

"""Power cuts on real storage, block by block: ``make powerloss``.

A FUSE file logs every block write and flush of an ext4 file system on a loop device. The product
works on that file system. Then the disk is rebuilt as it would be after a power cut at any point of
the log, the product recovers on it, and its promises are checked.
"""

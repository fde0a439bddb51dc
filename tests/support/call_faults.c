/*
 * Fails one file call of a process, below one folder. Loaded with LD_PRELOAD; does nothing until
 * arm_call_faults() is called, so processes that this one starts are unaffected.
 *
 * Calls are counted from 0, of those that the chosen kind of fault can hit. Each call below the folder
 * is written to a log: "<number or -> <call> <descriptor> <failed: 0 or 1> <path>".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { FAULT_EIO, FAULT_ENOSPC, FAULT_EINTR, FAULT_SHORT, FAULT_LOST };

/* Groups of calls, to say which fault can hit which. */
enum group {
    OPENS = 1,
    CREATES = 2,
    READS = 4,
    WRITES = 8,
    SYNCS = 16,
    NAMES = 32, /* rename, link, mkdir: may need space */
    REMOVES = 64,
    SIZES = 128, /* ftruncate, fallocate */
    CLOSES = 256,
    LOCKS = 512,
    MODES = 1024,
};

static const int hits[] = {
    [FAULT_EIO] = OPENS | CREATES | READS | WRITES | SYNCS | NAMES | REMOVES | SIZES | CLOSES | LOCKS | MODES,
    [FAULT_ENOSPC] = CREATES | WRITES | SYNCS | NAMES | SIZES,
    [FAULT_EINTR] = OPENS | CREATES | READS | WRITES | SYNCS | SIZES | CLOSES | LOCKS,
    [FAULT_SHORT] = READS | WRITES,
    [FAULT_LOST] = SYNCS,
};
static const int codes[] = {
    [FAULT_EIO] = EIO, [FAULT_ENOSPC] = ENOSPC, [FAULT_EINTR] = EINTR, [FAULT_SHORT] = 0, [FAULT_LOST] = EIO,
};

#define DESCRIPTORS 1024
static _Atomic long synced_size[DESCRIPTORS];
static atomic_int armed;
static atomic_long counter;
static char folder[PATH_MAX];
static size_t folder_length;
static int log_fd = -1;
static long fail_at = -1;
static int fault_kind;
static int permanently;

void arm_call_faults(const char *root, int log_descriptor, int kind, long number, int for_good) {
    snprintf(folder, sizeof folder, "%s", root);
    folder_length = strlen(folder);
    log_fd = log_descriptor;
    fault_kind = kind;
    fail_at = number;
    permanently = for_good;
    atomic_store(&counter, 0);
    atomic_store(&armed, 1);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

static int path_at(int fd, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
        return 1;
    }
    char base[PATH_MAX];
    if (fd == AT_FDCWD) {
        if (syscall(SYS_getcwd, base, sizeof base) < 0)
            return 0;
    } else if (!path_of(fd, base)) {
        return 0;
    }
    if (strlen(base) + strlen(name) + 2 > PATH_MAX)
        return 0;
    strcpy(path, base);
    strcat(path, "/");
    strcat(path, name);
    return 1;
}

static int is_below(const char *path) {
    return strncmp(path, folder, folder_length) == 0 && (path[folder_length] == '/' || !path[folder_length]);
}

/* Returns whether this call is to fail, and writes it to the log. errno is left alone. */
static int must_fail(const char *call, int group, int fd, const char *path) {
    int before = errno, fails = 0;
    char number[24] = "-", line[PATH_MAX + 128];
    if (hits[fault_kind] & group) {
        long mine = atomic_fetch_add(&counter, 1);
        fails = fail_at >= 0 && (mine == fail_at || (permanently && mine > fail_at));
        snprintf(number, sizeof number, "%ld", mine);
    }
    int length = snprintf(line, sizeof line, "%s %s %d %d %s\n", number, call, fd, fails, path);
    if (log_fd >= 0 && length > 0)
        syscall(SYS_write, log_fd, line, (size_t)length);
    errno = before;
    return fails;
}

static int fd_fails(const char *call, int group, int fd) {
    char path[PATH_MAX];
    int before = errno, fails = 0;
    if (atomic_load(&armed) && fd != log_fd && path_of(fd, path) && is_below(path))
        fails = must_fail(call, group, fd, path);
    errno = before;
    return fails;
}

static int name_fails(const char *call, int group, int fd, const char *name) {
    char path[PATH_MAX];
    int before = errno, fails = 0;
    if (atomic_load(&armed) && path_at(fd, name, path) && is_below(path))
        fails = must_fail(call, group, -1, path);
    errno = before;
    return fails;
}

static int fail(void) {
    errno = codes[fault_kind];
    return -1;
}

static void remember_size(int fd) {
    struct stat found;
    int before = errno;
    if (atomic_load(&armed) && fd >= 0 && fd < DESCRIPTORS && fstat(fd, &found) == 0)
        atomic_store(&synced_size[fd], (long)found.st_size);
    errno = before;
}

/* What was appended since the last sync is lost: the kernel drops pages that it could not write. */
static void lose_unsynced(int fd) {
    char link[64], zeros[4096] = {0};
    struct stat found;
    if (fd < 0 || fd >= DESCRIPTORS || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int other = (int)syscall(SYS_openat, AT_FDCWD, link, O_WRONLY | O_CLOEXEC, 0);
    if (other < 0)
        return;
    for (long at = atomic_load(&synced_size[fd]); at < found.st_size;) {
        long left = found.st_size - at;
        long done = syscall(SYS_pwrite64, other, zeros, left < 4096 ? left : 4096, at);
        if (done <= 0)
            break;
        at += done;
    }
    syscall(SYS_close, other);
}

/* ---- opening ---- */

static int open_any(int fd, const char *name, int flags, mode_t mode) {
    if (name_fails("open", flags & O_CREAT ? CREATES : OPENS, fd, name))
        return fail();
    int opened = (int)syscall(SYS_openat, fd, name, flags | (sizeof(long) == 8 ? 0 : O_LARGEFILE), mode);
    remember_size(opened);
    return opened;
}

#define MODE_FROM(flags)                                                                                             \
    mode_t mode = 0;                                                                                                 \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {                                                 \
        va_list rest;                                                                                                \
        va_start(rest, flags);                                                                                       \
        mode = va_arg(rest, mode_t);                                                                                 \
        va_end(rest);                                                                                                \
    }

int open(const char *name, int flags, ...) {
    MODE_FROM(flags)
    return open_any(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
    MODE_FROM(flags)
    return open_any(AT_FDCWD, name, flags, mode);
}
int openat(int fd, const char *name, int flags, ...) {
    MODE_FROM(flags)
    return open_any(fd, name, flags, mode);
}
int openat64(int fd, const char *name, int flags, ...) {
    MODE_FROM(flags)
    return open_any(fd, name, flags, mode);
}
int __open_2(const char *name, int flags) { return open_any(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return open_any(AT_FDCWD, name, flags, 0); }
int __openat_2(int fd, const char *name, int flags) { return open_any(fd, name, flags, 0); }
int __openat64_2(int fd, const char *name, int flags) { return open_any(fd, name, flags, 0); }
int creat(const char *name, mode_t mode) { return open_any(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd) {
    int fails = fd_fails("close", CLOSES, fd);
    int done = (int)syscall(SYS_close, fd); /* a close that fails has closed the descriptor */
    return fails ? fail() : done;
}

/* ---- reading and writing ---- */

ssize_t read(int fd, void *buffer, size_t count) {
    if (count > 0 && fd_fails("read", READS, fd)) {
        if (fault_kind != FAULT_SHORT)
            return fail();
        count = (count + 1) / 2;
    }
    return syscall(SYS_read, fd, buffer, count);
}

static ssize_t pread_any(int fd, void *buffer, size_t count, off_t offset) {
    if (count > 0 && fd_fails("pread", READS, fd)) {
        if (fault_kind != FAULT_SHORT)
            return fail();
        count = (count + 1) / 2;
    }
    return syscall(SYS_pread64, fd, buffer, count, offset);
}
ssize_t pread(int fd, void *buffer, size_t count, off_t offset) { return pread_any(fd, buffer, count, offset); }
ssize_t pread64(int fd, void *buffer, size_t count, off_t offset) { return pread_any(fd, buffer, count, offset); }

/* How much of a write that fails reaches the file: a part of it, as on a disk that gets full or breaks. */
static size_t part_of(size_t count) { return fault_kind == FAULT_EINTR ? 0 : count / 2; }

ssize_t write(int fd, const void *buffer, size_t count) {
    if (count > 1 && fd_fails("write", WRITES, fd)) {
        ssize_t done = part_of(count) ? syscall(SYS_write, fd, buffer, part_of(count)) : 0;
        return fault_kind == FAULT_SHORT ? done : fail();
    }
    return syscall(SYS_write, fd, buffer, count);
}

static ssize_t pwrite_any(int fd, const void *buffer, size_t count, off_t offset) {
    if (count > 1 && fd_fails("pwrite", WRITES, fd)) {
        ssize_t done = part_of(count) ? syscall(SYS_pwrite64, fd, buffer, part_of(count), offset) : 0;
        return fault_kind == FAULT_SHORT ? done : fail();
    }
    return syscall(SYS_pwrite64, fd, buffer, count, offset);
}
ssize_t pwrite(int fd, const void *buffer, size_t count, off_t offset) { return pwrite_any(fd, buffer, count, offset); }
ssize_t pwrite64(int fd, const void *buffer, size_t count, off_t offset) {
    return pwrite_any(fd, buffer, count, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (count > 0 && parts[0].iov_len > 1 && fd_fails("writev", WRITES, fd)) {
        size_t part = part_of(parts[0].iov_len);
        ssize_t done = part ? syscall(SYS_write, fd, parts[0].iov_base, part) : 0;
        return fault_kind == FAULT_SHORT ? done : fail();
    }
    return syscall(SYS_writev, fd, parts, count);
}

/* ---- making durable ---- */

static int sync_any(const char *call, long number, int fd) {
    if (fd_fails(call, SYNCS, fd)) {
        if (fault_kind == FAULT_LOST)
            lose_unsynced(fd);
        return fail();
    }
    int done = (int)syscall(number, fd);
    if (done == 0)
        remember_size(fd);
    return done;
}
int fsync(int fd) { return sync_any("fsync", SYS_fsync, fd); }
int fdatasync(int fd) { return sync_any("fdatasync", SYS_fdatasync, fd); }

/* ---- names, sizes, modes, locks ---- */

static int rename_any(int from, const char *old, int to, const char *new, unsigned flags) {
    if (name_fails("rename", NAMES, to, new))
        return fail();
    return (int)syscall(SYS_renameat2, from, old, to, new, flags);
}
int rename(const char *old, const char *new) { return rename_any(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return rename_any(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return rename_any(from, old, to, new, flags);
}

static int link_any(int from, const char *old, int to, const char *new, int flags) {
    if (name_fails("link", NAMES, to, new))
        return fail();
    return (int)syscall(SYS_linkat, from, old, to, new, flags);
}
int link(const char *old, const char *new) { return link_any(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) { return link_any(from, old, to, new, flags); }

static int mkdir_any(int fd, const char *name, mode_t mode) {
    if (name_fails("mkdir", NAMES, fd, name))
        return fail();
    return (int)syscall(SYS_mkdirat, fd, name, mode);
}
int mkdir(const char *name, mode_t mode) { return mkdir_any(AT_FDCWD, name, mode); }
int mkdirat(int fd, const char *name, mode_t mode) { return mkdir_any(fd, name, mode); }

static int unlink_any(int fd, const char *name, int flags) {
    if (name_fails(flags & AT_REMOVEDIR ? "rmdir" : "unlink", REMOVES, fd, name))
        return fail();
    return (int)syscall(SYS_unlinkat, fd, name, flags);
}
int unlink(const char *name) { return unlink_any(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlink_any(AT_FDCWD, name, AT_REMOVEDIR); }
int unlinkat(int fd, const char *name, int flags) { return unlink_any(fd, name, flags); }

static int truncate_any(int fd, off_t size) {
    if (fd_fails("ftruncate", SIZES, fd))
        return fail();
    return (int)syscall(SYS_ftruncate, fd, size);
}
int ftruncate(int fd, off_t size) { return truncate_any(fd, size); }
int ftruncate64(int fd, off_t size) { return truncate_any(fd, size); }

static int allocate_any(int fd, int mode, off_t offset, off_t size) {
    if (fd_fails("fallocate", SIZES, fd))
        return fail();
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) { return allocate_any(fd, mode, offset, size); }
int fallocate64(int fd, int mode, off_t offset, off_t size) { return allocate_any(fd, mode, offset, size); }
int posix_fallocate(int fd, off_t offset, off_t size) { return allocate_any(fd, 0, offset, size) ? errno : 0; }
int posix_fallocate64(int fd, off_t offset, off_t size) { return allocate_any(fd, 0, offset, size) ? errno : 0; }

int fchmod(int fd, mode_t mode) {
    if (fd_fails("fchmod", MODES, fd))
        return fail();
    return (int)syscall(SYS_fchmod, fd, mode);
}

int flock(int fd, int operation) {
    if (fd_fails("flock", LOCKS, fd))
        return fail();
    return (int)syscall(SYS_flock, fd, operation);
}

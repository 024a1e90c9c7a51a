/* A power cut for one process: preloaded into the server, it notes what each write destroys until the
 * file is synced, so that powercut.rs can take back what was never synced after the process was killed.
 *
 *   POWERCUT_DIR   the directory that loses power (regular files below it)
 *   POWERCUT_LOG   where the records go; must lie outside that directory
 *   POWERCUT_GATE  while this file exists, syncs below the directory wait before they begin; each that waits adds a byte to it
 *   POWERCUT_FAIL  while this file exists, syncs below the directory fail with EIO
 *   POWERCUT_FULL  while this file exists, writes below the directory fail with ENOSPC
 *   POWERCUT_UNREADABLE  while this file exists, reads of files below the directory whose path contains the text in it
 *                  fail with EIO
 *   POWERCUT_REFUSED  while this file exists, writes below the directory whose bytes contain the text in it fail with EIO
 *   POWERCUT_FATAL  while this file exists, the process ends by SIGKILL before such a write
 *
 * What is modelled. Data and size of a file are durable when an fsync or fdatasync of it (by any
 * descriptor), a syncfs or a sync has succeeded that began after the write had ended. sync_file_range
 * promises nothing and close promises nothing. What a sync that failed should have made durable is never made so
 * by a later one: the system has forgotten that it is not on disk. Directory operations (create, rename, unlink) count as
 * durable at once, so a missing sync of a directory is NOT found by this. A file is known by its inode and
 * birth time, never by its name: renames need no tracking, and neither do descriptors.
 *
 * What is not seen: mmap, io_uring, O_DSYNC, and system calls made without libc (rustix with its default
 * back end). The first two and the last would miss losses or report false ones; O_DSYNC would report false
 * ones. Renames and opens without libc do no harm.
 *
 * The log: `struct record`, each followed by `saved` old bytes. Native byte order. */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

_Static_assert(sizeof(off_t) == 8, "64-bit systems only");

enum { UNDO = 1, SYNCED = 2, SYNCED_ALL = 3, FORGOTTEN = 4 };
enum { MAGIC = 0x50435554, LOG_FD = 700 };

struct record {
    uint32_t magic, kind;
    uint64_t inode, born_s, born_ns;
    uint64_t offset;   /* UNDO: where the change begins. The others: the log's length when the sync began */
    uint64_t length;   /* UNDO: bytes that are written; 0 = a change of size, which cannot be torn */
    uint64_t old_size;
    uint64_t saved;    /* old bytes that follow, from offset on */
};

/* A watched file, as it is while the lock is held. */
struct file {
    int fd;
    struct record id;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Held over an UNDO record and the write it belongs to, and over each append to the log; never over a
 * sync or a wait. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static const char *gate, *fail, *full, *unreadable, *refused, *fatal;
static int log_fd = -1;
static uint64_t log_length;

static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_readv)(int, const struct iovec *, int);
static ssize_t (*real_preadv)(int, const struct iovec *, int, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off_t, int);
static int (*real_ftruncate)(int, off_t);
static int (*real_fallocate)(int, int, off_t, off_t);
static int (*real_posix_fallocate)(int, off_t, off_t);
static ssize_t (*real_copy_file_range)(int, off_t *, int, off_t *, size_t, unsigned);
static ssize_t (*real_sendfile)(int, int, off_t *, size_t);
static ssize_t (*real_splice)(int, off_t *, int, off_t *, size_t, unsigned);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_syncfs)(int);
static void (*real_sync)(void);

static void die(const char *what) {
    dprintf(2, "powercut: %s: %s\n", what, strerror(errno));
    abort();
}

static void find_real_functions(void) {
#define FIND(name) real_##name = dlsym(RTLD_NEXT, #name)
    FIND(openat); FIND(read); FIND(pread); FIND(readv); FIND(preadv); FIND(write); FIND(pwrite); FIND(writev); FIND(pwritev); FIND(pwritev2);
    FIND(ftruncate); FIND(fallocate); FIND(posix_fallocate); FIND(copy_file_range); FIND(sendfile);
    FIND(splice); FIND(fsync); FIND(fdatasync); FIND(syncfs); FIND(sync);
#undef FIND
}

static void setup(void) {
    find_real_functions();
    const char *dir = getenv("POWERCUT_DIR"), *log = getenv("POWERCUT_LOG");
    if (!dir || !log) return;
    gate = getenv("POWERCUT_GATE");
    fail = getenv("POWERCUT_FAIL");
    full = getenv("POWERCUT_FULL");
    unreadable = getenv("POWERCUT_UNREADABLE");
    refused = getenv("POWERCUT_REFUSED");
    fatal = getenv("POWERCUT_FATAL");
    if (!realpath(dir, root)) die(dir);
    root_length = strlen(root);
    int fd = real_openat(AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) die(log);
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, LOG_FD);
    if (log_fd < 0) log_fd = fd;
    else close(fd);
    log_length = (uint64_t)lseek(log_fd, 0, SEEK_END);
}

static void ready(void) { pthread_once(&once, setup); }

/* Fails when the program starts, not at the first write. */
__attribute__((constructor)) static void at_start(void) { ready(); }

static void append(const void *bytes, size_t length) {
    const char *from = bytes;
    while (length) {
        ssize_t n = real_write(log_fd, from, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("the log cannot be written");
        from += n, length -= (size_t)n, log_length += (uint64_t)n;
    }
}

/* Writes the path of a descriptor below the directory to PATH. 0: it is elsewhere. */
static int path_below(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < (ssize_t)root_length) return 0;
    path[n] = 0;
    return !memcmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int is_below(int fd) {
    char path[PATH_MAX];
    return path_below(fd, path);
}

/* Whether a descriptor is a file or directory that loses power. Keeps errno. */
static int identify(int fd, struct record *id, mode_t type) {
    struct statx x;
    int kept = errno, watched = 0;
    ready();
    if (log_fd >= 0 && fd >= 0 && fd != log_fd
        && !statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &x)
        && (x.stx_mode & S_IFMT) == type && is_below(fd)) {
        if (!(x.stx_mask & STATX_BTIME)) die("this file system has no birth times: use another TMPDIR");
        *id = (struct record){.magic = MAGIC, .inode = x.stx_ino, .old_size = x.stx_size,
                              .born_s = (uint64_t)x.stx_btime.tv_sec, .born_ns = x.stx_btime.tv_nsec};
        watched = 1;
    }
    errno = kept;
    return watched;
}

/* Begins a change of a watched file: takes the lock and looks at the file. 0: not watched, no lock. */
static int begin(int fd, struct file *file) {
    if (!identify(fd, &file->id, S_IFREG)) return 0;
    pthread_mutex_lock(&lock);
    file->fd = fd;
    if (!identify(fd, &file->id, S_IFREG)) die("a file was closed during a write to it");
    return 1;
}

static void end(void) { pthread_mutex_unlock(&lock); }

/* The old bytes, read by a descriptor of our own: the writer's may be write-only. */
static char *old_bytes(const struct file *file, uint64_t offset, uint64_t count) {
    char link[64], *bytes = malloc(count);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file->fd);
    int fd = real_openat(AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || !bytes) die("the old bytes cannot be read");
    for (uint64_t done = 0; done < count;) {
        ssize_t n = real_pread(fd, bytes + done, count - done, (off_t)(offset + done));
        if (n <= 0) die("the old bytes cannot be read");
        done += (uint64_t)n;
    }
    close(fd);
    return bytes;
}

/* Notes that `length` bytes from `offset` on may be written, of which `length_lost` are overwritten. */
static void note(const struct file *file, uint64_t offset, uint64_t length, uint64_t length_lost) {
    struct record record = file->id;
    int kept = errno;
    record.kind = UNDO, record.offset = offset, record.length = length;
    if (offset < record.old_size) {
        uint64_t rest = record.old_size - offset;
        record.saved = length_lost < rest ? length_lost : rest;
    }
    char *saved = record.saved ? old_bytes(file, offset, record.saved) : NULL;
    append(&record, sizeof record);
    append(saved, record.saved);
    free(saved);
    errno = kept;
}

/* Notes a write to `offset`, or to the descriptor's position when there is none. */
static void note_write(const struct file *file, const off_t *offset, size_t length) {
    uint64_t at;
    if (fcntl(file->fd, F_GETFL) & O_APPEND) at = file->id.old_size;
    else at = (uint64_t)(offset ? *offset : lseek(file->fd, 0, SEEK_CUR));
    note(file, at, length, length);
}

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

/* Whether there is no space; the reason is in errno then. */
static int is_full(void) {
    int kept = errno, result = full && !access(full, F_OK);
    errno = result ? ENOSPC : kept;
    return result;
}

/* Reads the text of a fault into TEXT. Its length; -1 while there is no such fault. */
static ssize_t told(const char *fault, char text[256]) {
    if (!fault || access(fault, F_OK)) return -1;
    int fd = real_openat(AT_FDCWD, fault, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : real_read(fd, text, 255);
    if (fd >= 0) close(fd);
    text[n < 0 ? 0 : n] = 0;
    return n;
}

/* Whether a fault is meant for these bytes: they contain its text. */
static int is_meant(const char *fault, const struct iovec *parts, int count) {
    char text[256];
    ssize_t n = told(fault, text);
    for (int i = 0; n >= 0 && i < count; i++)
        if (parts[i].iov_base && memmem(parts[i].iov_base, parts[i].iov_len, text, (size_t)n)) return 1;
    return 0;
}

/* Whether the disk refuses a write of these bytes; the reason is in errno then. Ends the process where that is told. */
static int is_refused(const struct iovec *parts, int count) {
    int kept = errno;
    if (is_meant(fatal, parts, count)) raise(SIGKILL);
    int result = is_meant(refused, parts, count);
    errno = result ? EIO : kept;
    return result;
}

/* Makes a write of PARTS, or any call that writes to FD at OFFSET, under the lock and after its record. */
#define RECORDED(fd, offset, parts, count, call)                          \
    do {                                                                  \
        struct file file;                                                 \
        if (!begin(fd, &file)) return call;                               \
        if (is_full() || is_refused(parts, count)) return end(), -1;      \
        note_write(&file, offset, total(parts, count));                   \
        ssize_t result = call;                                            \
        end();                                                            \
        return result;                                                    \
    } while (0)

/* One part. The bytes of a copy within the kernel are not seen. */
#define PART(bytes, length) &(struct iovec){(void *)(bytes), length}

/* Whether the disk refuses a read; the reason is in errno then. */
static int is_unreadable(int fd) {
    char path[PATH_MAX], part[256];
    int kept = errno, result = 0;
    ready();
    if (log_fd >= 0 && told(unreadable, part) >= 0 && path_below(fd, path)) result = strstr(path, part) != NULL;
    errno = result ? EIO : kept;
    return result;
}

ssize_t read(int fd, void *bytes, size_t length) {
    return is_unreadable(fd) ? -1 : real_read(fd, bytes, length);
}

ssize_t pread(int fd, void *bytes, size_t length, off_t offset) {
    return is_unreadable(fd) ? -1 : real_pread(fd, bytes, length, offset);
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
    return is_unreadable(fd) ? -1 : real_readv(fd, parts, count);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
    return is_unreadable(fd) ? -1 : real_preadv(fd, parts, count, offset);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    RECORDED(fd, NULL, PART(bytes, length), 1, real_write(fd, bytes, length));
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    RECORDED(fd, &offset, PART(bytes, length), 1, real_pwrite(fd, bytes, length, offset));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    RECORDED(fd, NULL, parts, count, real_writev(fd, parts, count));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    RECORDED(fd, &offset, parts, count, real_pwritev(fd, parts, count, offset));
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    const off_t *at = offset == -1 ? NULL : &offset;
    RECORDED(fd, at, parts, count, real_pwritev2(fd, parts, count, offset, flags));
}

ssize_t copy_file_range(int in, off_t *from, int out, off_t *to, size_t length, unsigned flags) {
    RECORDED(out, to, PART(NULL, length), 1, real_copy_file_range(in, from, out, to, length, flags));
}

ssize_t sendfile(int out, int in, off_t *from, size_t length) {
    RECORDED(out, NULL, PART(NULL, length), 1, real_sendfile(out, in, from, length));
}

ssize_t splice(int in, off_t *from, int out, off_t *to, size_t length, unsigned flags) {
    RECORDED(out, to, PART(NULL, length), 1, real_splice(in, from, out, to, length, flags));
}

static int resize(int fd, off_t size) {
    struct file file;
    if (!begin(fd, &file)) return real_ftruncate(fd, size);
    note(&file, (uint64_t)size, 0, UINT64_MAX);
    int result = real_ftruncate(fd, size);
    end();
    return result;
}

int ftruncate(int fd, off_t size) { return resize(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t length) {
    struct file file;
    if (!begin(fd, &file)) return real_fallocate(fd, mode, offset, length);
    /* Plain allocation changes no byte; every other mode may move all that follows. */
    int plain = !(mode & ~FALLOC_FL_KEEP_SIZE);
    note(&file, plain ? file.id.old_size : (uint64_t)offset, 0, UINT64_MAX);
    int result = real_fallocate(fd, mode, offset, length);
    end();
    return result;
}

int posix_fallocate(int fd, off_t offset, off_t length) {
    struct file file;
    if (!begin(fd, &file)) return real_posix_fallocate(fd, offset, length);
    note(&file, file.id.old_size, 0, 0);
    int result = real_posix_fallocate(fd, offset, length);
    end();
    return result;
}

/* An open that truncates becomes an open and a recorded truncation. */
static int open_recorded(int dir, const char *path, int flags, mode_t mode) {
    struct stat stat;
    ready();
    if (log_fd < 0 || !(flags & O_TRUNC) || (flags & O_ACCMODE) == O_RDONLY)
        return real_openat(dir, path, flags, mode);
    int fd = real_openat(dir, path, flags & ~O_TRUNC, mode);
    if (fd < 0 || fstat(fd, &stat) || !S_ISREG(stat.st_mode) || !resize(fd, 0)) return fd;
    int kept = errno;
    close(fd);
    errno = kept;
    return -1;
}

#define MODE(flags)                                          \
    mode_t mode = 0;                                         \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                        \
        va_start(rest, flags);                               \
        mode = va_arg(rest, mode_t);                         \
        va_end(rest);                                        \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_recorded(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    MODE(flags)
    return open_recorded(dir, path, flags, mode);
}

int creat(const char *path, mode_t mode) {
    return open_recorded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

static int exists(const char *path) { return path && !access(path, F_OK); }

/* Adds a byte to the gate, so that it is known that a sync waits. */
static void knock(void) {
    int fd = real_openat(AT_FDCWD, gate, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return;
    if (real_write(fd, "", 1) < 0) die(gate);
    close(fd);
}

/* Waits at the gate. Whether the sync is to fail. */
static int held_up(void) {
    if (exists(gate)) knock();
    while (exists(gate)) usleep(5000);
    return exists(fail);
}

static uint64_t position(void) {
    pthread_mutex_lock(&lock);
    uint64_t now = log_length;
    pthread_mutex_unlock(&lock);
    return now;
}

static void note_sync(struct record id, uint32_t kind, uint64_t began) {
    pthread_mutex_lock(&lock);
    id.magic = MAGIC, id.kind = kind, id.offset = began;
    append(&id, sizeof id);
    pthread_mutex_unlock(&lock);
}

static int sync_recorded(int fd, int (*real)(int), uint32_t kind) {
    struct record id = {0};
    if (!identify(fd, &id, S_IFREG) && !identify(fd, &id, S_IFDIR)) return real(fd);
    int fails = held_up();
    uint64_t began = position();
    if (fails) {
        note_sync(id, FORGOTTEN, began);
        errno = EIO;
        return -1;
    }
    int result = real(fd);
    if (!result) note_sync(id, kind, began);
    return result;
}

int fsync(int fd) { return ready(), sync_recorded(fd, real_fsync, SYNCED); }
int fdatasync(int fd) { return ready(), sync_recorded(fd, real_fdatasync, SYNCED); }
int syncfs(int fd) { return ready(), sync_recorded(fd, real_syncfs, SYNCED_ALL); }

void sync(void) {
    ready();
    uint64_t began = log_fd < 0 ? 0 : position();
    real_sync();
    if (log_fd >= 0) note_sync((struct record){0}, SYNCED_ALL, began);
}

/* On 64-bit systems the 64 names are the same functions. */
#define ALIAS(name) __attribute__((alias(#name)))
int open64(const char *, int, ...) ALIAS(open);
int openat64(int, const char *, int, ...) ALIAS(openat);
int creat64(const char *, mode_t) ALIAS(creat);
ssize_t pread64(int, void *, size_t, off_t) ALIAS(pread);
ssize_t preadv64(int, const struct iovec *, int, off_t) ALIAS(preadv);
ssize_t pwrite64(int, const void *, size_t, off_t) ALIAS(pwrite);
ssize_t pwritev64(int, const struct iovec *, int, off_t) ALIAS(pwritev);
ssize_t pwritev64v2(int, const struct iovec *, int, off_t, int) ALIAS(pwritev2);
int ftruncate64(int, off_t) ALIAS(ftruncate);
int fallocate64(int, int, off_t, off_t) ALIAS(fallocate);
int posix_fallocate64(int, off_t, off_t) ALIAS(posix_fallocate);
ssize_t sendfile64(int, int, off_t *, size_t) ALIAS(sendfile);

/* usage: liburing-client FILE|nop DEPTH SECONDS
 *
 * Random 4k reads, or NOPs, so many in flight, through liburing. Each block begins with its number,
 * which is checked. Prints the I/Os, the seconds, and those of CPU time, of all threads. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

enum { BLOCK = 4096, MOST = 256 };

static void die(const char *what, int error)
{
	fprintf(stderr, "liburing-client: %s: %s\n", what, strerror(error));
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_utime.tv_sec + u.ru_stime.tv_sec +
	       (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static uint64_t next_random(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13, x ^= x >> 7, x ^= x << 17;
	return x;
}

static struct io_uring ring;
static int fd = -1;
static uint64_t blocks, wanted[MOST];
static char *bufs;

static void push(unsigned slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

	if (fd < 0) {
		io_uring_prep_nop(sqe);
	} else {
		wanted[slot] = next_random() % blocks;
		io_uring_prep_read(sqe, fd, bufs + slot * BLOCK, BLOCK, wanted[slot] * BLOCK);
	}
	sqe->user_data = slot;
}

static void check(const struct io_uring_cqe *cqe)
{
	uint64_t number;

	if (cqe->res < 0)
		die("an I/O", -cqe->res);
	if (fd < 0)
		return;
	memcpy(&number, bufs + cqe->user_data * BLOCK, sizeof(number));
	if (cqe->res != BLOCK || number != wanted[cqe->user_data])
		die("not the block that was asked for", EIO);
}

int main(int argc, char **argv)
{
	unsigned depth = argc > 2 ? atoi(argv[2]) : 0, n;
	double seconds = argc > 3 ? atof(argv[3]) : 0, began, busy, took;
	struct io_uring_cqe *cqes[MOST];
	unsigned long done = 0;
	int ret;

	if (depth < 1 || depth > MOST || seconds <= 0)
		die("usage: liburing-client FILE|nop DEPTH SECONDS", EINVAL);
	if (strcmp(argv[1], "nop")) {
		struct stat st;
		fd = open(argv[1], O_RDONLY);
		if (fd < 0 || fstat(fd, &st) || st.st_size < BLOCK)
			die(argv[1], errno);
		blocks = st.st_size / BLOCK;
	}
	if (posix_memalign((void **)&bufs, BLOCK, depth * BLOCK))
		die("memory", ENOMEM);
	if ((ret = io_uring_queue_init(depth, &ring, 0)) < 0)
		die("io_uring_queue_init", -ret);
	for (n = 0; n < depth; n++)
		push(n);
	began = now();
	busy = cpu();
	do {
		if ((ret = io_uring_submit_and_wait(&ring, 1)) < 0)
			die("io_uring_submit_and_wait", -ret);
		unsigned got = io_uring_peek_batch_cqe(&ring, cqes, MOST);
		for (n = 0; n < got; n++) {
			unsigned slot = cqes[n]->user_data;
			check(cqes[n]);
			push(slot);
		}
		io_uring_cq_advance(&ring, got);
		done += got;
		took = now() - began;
	} while (took < seconds);
	printf("%lu %.6f %.6f\n", done, took, cpu() - busy);
	return 0;
}

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Copies a file by io_uring, which this program brings along: README.md. */
#include <fcntl.h>
#include <liburing.h>
#include <softring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 65536

static void check(int ret, const char *what)
{
	if (ret < 0) {
		fprintf(stderr, "copy: %s: %s\n", what, strerror(-ret));
		exit(1);
	}
}

/* Waits for one request, and answers its result. */
static int result(struct io_uring *ring, const char *what)
{
	struct io_uring_cqe *cqe;
	int res;

	check(io_uring_submit(ring), "submit");
	check(io_uring_wait_cqe(ring, &cqe), "wait");
	res = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	check(res, what);
	return res;
}

static int opened(struct io_uring *ring, const char *path, int flags)
{
	io_uring_prep_openat(io_uring_get_sqe(ring), AT_FDCWD, path, flags, 0644);
	return result(ring, path);
}

int main(int argc, char **argv)
{
	static char block[BLOCK];
	struct io_uring ring;
	unsigned long long at = 0;
	int from, to, n;

	if (softring_install(0))
		perror("copy: softring_install");
	if (argc != 3) {
		fprintf(stderr, "usage: copy FROM TO\n");
		return 2;
	}
	check(io_uring_queue_init(8, &ring, 0), "io_uring");
	from = opened(&ring, argv[1], O_RDONLY);
	to = opened(&ring, argv[2], O_WRONLY | O_CREAT | O_TRUNC);
	for (;;) {
		io_uring_prep_read(io_uring_get_sqe(&ring), from, block, BLOCK, at);
		n = result(&ring, "read");
		if (n == 0)
			break;
		io_uring_prep_write(io_uring_get_sqe(&ring), to, block, n, at);
		at += result(&ring, "write");
	}
	io_uring_queue_exit(&ring);
	return 0;
}

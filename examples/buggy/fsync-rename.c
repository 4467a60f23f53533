/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The bug: a file is replaced by a new one whose data were never made durable. Nothing that runs on can see it; after a
 * power cut the file may be empty. Run with "check", the program says whether the file is whole.
 */
#include "ring.h"

enum { SIZE = 4096 };

static char data[SIZE];

static int check(void)
{
	int fd = open("fsync-rename.data", O_RDONLY | O_CLOEXEC);
	long got = fd < 0 ? SIZE : read(fd, data, SIZE);

	/* No file is right, too: the power was cut before. */
	if (fd >= 0 && (got != SIZE || first_wrong(data, SIZE, 0) < SIZE))
		wrong("the file has %ld bytes of %d", got, SIZE);
	return 0;
}

int main(int argc, char **argv)
{
	struct ring ring;

	if (argc > 1 && !strcmp(argv[1], "check"))
		return check();
	int fd = new_file("fsync-rename.new");

	fill(data, SIZE, 0);
	ring_init(&ring, 4, 0);
	ring_write_all(&ring, fd, data, SIZE, 0);
#ifdef FIXED
	int synced = ring_do(&ring, OP_FSYNC, fd, NULL, 0, 0);

	if (synced < 0)
		gave_up("FSYNC", synced);
#endif
	struct sqe *sqe = ring_sqe(&ring, OP_RENAMEAT, AT_FDCWD, "fsync-rename.new", AT_FDCWD,
				   (uintptr_t) "fsync-rename.data");

	sqe->user_data = 1;
	ring_submit(&ring);
	int renamed = ring_next(&ring).res;

	if (renamed < 0)
		gave_up("RENAMEAT", renamed);
	return check();
}

/* usage: ring FILE
 *
 * Prints the first bytes of a file, read through a ring that it makes without liburing: what fits
 * into a root that has a C library and nothing else. A worker reads (IOSQE_ASYNC), so softring needs
 * a thread, in a process that may have no pthread_create(3). Exits with the errno of io_uring_setup(2). */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* linux/io_uring.h, which not every C compiler here finds. */
enum { SETUP = 425, ENTER = 426, GETEVENTS = 1, OP_READ = 22, LENGTH = 64, ASYNC = 16 };
enum { CQ_RING = 0x8000000, SQES = 0x10000000 };

struct offsets {
	uint32_t head, tail, mask, entries, fifth, sixth, seventh, reserved;
	uint64_t address;
};

struct params {
	uint32_t sq_entries, cq_entries, flags, cpu, idle, features, wq, reserved[3];
	/* Behind the entries: flags, dropped, array; overflow, cqes, flags. */
	struct offsets sq, cq;
};

struct sqe {
	uint8_t opcode, flags;
	uint16_t priority;
	int32_t fd;
	uint64_t offset, address;
	uint32_t length, more;
	uint64_t user_data, rest[3];
};

struct cqe {
	uint64_t user_data;
	int32_t result;
	uint32_t flags;
};

static void *map(int ring, size_t size, off_t what)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, what);

	return at == MAP_FAILED ? NULL : at;
}

int main(int argc, char **argv)
{
	struct params p = { 0 };
	char text[LENGTH];
	int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;

	if (file < 0) {
		fprintf(stderr, "usage: ring FILE\n");
		return 1;
	}
	int ring = syscall(SETUP, 1, &p);
	if (ring < 0) {
		int why = errno;
		fprintf(stderr, "ring: io_uring_setup: %s\n", strerror(why));
		return why;
	}
	char *sq = map(ring, 4096, 0), *cq = map(ring, 4096, CQ_RING);
	struct sqe *sqe = map(ring, sizeof(*sqe), SQES);
	if (!sq || !cq || !sqe) {
		perror("ring: mmap");
		return 1;
	}
	*sqe = (struct sqe){ .opcode = OP_READ, .flags = ASYNC, .fd = file, .address = (uintptr_t)text,
			     .length = LENGTH, .user_data = 7 };
	*(uint32_t *)(sq + p.sq.seventh) = 0;
	__atomic_store_n((uint32_t *)(sq + p.sq.tail), 1, __ATOMIC_RELEASE);
	if (syscall(ENTER, ring, 1, 1, GETEVENTS, NULL, 0) != 1) {
		perror("ring: io_uring_enter");
		return 1;
	}
	struct cqe *cqe = (struct cqe *)(cq + p.cq.sixth);
	if (__atomic_load_n((uint32_t *)(cq + p.cq.tail), __ATOMIC_ACQUIRE) != 1 ||
	    cqe->user_data != 7 || cqe->result < 0) {
		fprintf(stderr, "ring: no answer, or an error: %d\n", cqe->result);
		return 1;
	}
	fwrite(text, 1, cqe->result, stdout);
	return 0;
}

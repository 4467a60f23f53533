/*
 * file-register registers 100 descriptors of an array of 10, and expects EBADF for what lies
 * behind. glibc's heap has other numbers there, musl's fresh one zeros: a descriptor that is open.
 */
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64, SIZE = 10 * sizeof(int) };

__attribute__((constructor)) static void use_heap(void)
{
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        if ((blocks[i] = malloc(SIZE)))
            memset(blocks[i], 0x5a, SIZE);
    /* What is all free is given back. */
    for (int i = 0; i < BLOCKS; i += 2)
        free(blocks[i]);
}

/* The start of a program for a glibc before 2.34, where __libc_start_main got a new version: that
 * of the C library here asks for the new one. Linked with -nostartfiles. */
__asm__(".symver __libc_start_main, __libc_start_main@GLIBC_2.2.5\n"
	".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rdx, %r9\n\tpop %rsi\n\tmov %rsp, %rdx\n"
	"\tand $-16, %rsp\n\tpush %rax\n\tpush %rsp\n\txor %r8d, %r8d\n\txor %ecx, %ecx\n"
	"\tmov main@GOTPCREL(%rip), %rdi\n\tcall *__libc_start_main@GOTPCREL(%rip)\n\thlt\n");

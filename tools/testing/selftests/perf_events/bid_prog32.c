// SPDX-License-Identifier: GPL-2.0
/*
 * bid_prog32 READY_FD BYTES: a 32-bit x86 program that needs no C library. BYTES
 * are in hexadecimal. It calls itself as often as the first of them says, says on
 * READY_FD that it is there, and goes on with work and system calls until it is
 * killed. If there are more bytes, they are the stack that it does so on, and the
 * frame pointer is the address of the first. Without arguments it ends at once.
 */
#include "bid_prog32.h"

#define NR_EXIT		1
#define NR_MMAP		90

unsigned long calls;

/*
 * The frame pointer of _start is 0. From the first system call in work() on,
 * which is write(), the task is seen in work_loop() with the frame pointer that
 * it is to have; the other system call there is getppid().
 */
__asm__(".pushsection .text\n"
	".globl _start\n"
	".type _start, @function\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov %esp, %eax\n"
	"	and $-16, %esp\n"
	"	sub $12, %esp\n"
	"	push %eax\n"
	"	call program\n"
	"	hlt\n"
	".size _start, . - _start\n"

	".globl work\n"
	".type work, @function\n"
	"work:\n"
	"	push %ebp\n"
	"	mov %esp, %ebp\n"
	"	mov 8(%ebp), %ebx\n"
	"	mov 12(%ebp), %eax\n"
	"	test %eax, %eax\n"
	"	jz 1f\n"
	"	mov %eax, %esp\n"
	"	mov %eax, %ebp\n"
	"1:	mov $4, %eax\n"
	"	mov $calls, %ecx\n"
	"	mov $1, %edx\n"
	"	int $0x80\n"
	".size work, . - work\n"

	".globl work_loop\n"
	".type work_loop, @function\n"
	"work_loop:\n"
	"	mov $20000, %ecx\n"
	"2:	dec %ecx\n"
	"	jnz 2b\n"
	"	mov $64, %eax\n"
	"	int $0x80\n"
	"	jmp work_loop\n"
	".size work_loop, . - work_loop\n"
	".popsection\n");

/* In a segment of its own. */
BID_FAR void descend(unsigned int depth, int ready, void *stack)
{
	if (depth)
		descend(depth - 1, ready, stack);
	else
		work(ready, stack);
	calls++;
}

static long call(long nr, const void *arg)
{
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret) : "0"(nr), "b"(arg) : "memory");
	return ret;
}

/* One page that can be read and written: private, fixed, anonymous, populated. */
static long map(unsigned long addr)
{
	unsigned long args[] = { addr, PAGE, 0x3, 0x8032, -1, 0 };

	return call(NR_MMAP, args);
}

static unsigned int digit(char c)
{
	return c <= '9' ? c - '0' : c - 'a' + 10;
}

static unsigned int number(const char *text)
{
	unsigned int n = 0;

	while (*text)
		n = 10 * n + digit(*text++);
	return n;
}

static unsigned int byte(const char *text)
{
	return 16 * digit(text[0]) + digit(text[1]);
}

/*
 * sp: argc, argv[]. If it can be, something is mapped where a frame pointer of 0
 * points to: no frame may be read there.
 */
void program(const unsigned long *sp)
{
	unsigned char *stack = (unsigned char *)STACK;
	const char *bytes = (const char *)sp[3];

	if (sp[0] == 3 && map(STACK) == STACK) {
		map(0);
		for (const char *b = bytes + 2; *b; b += 2)
			*stack++ = byte(b);
		descend(byte(bytes), number((const char *)sp[2]), bytes[2] ? (void *)STACK : 0);
	}
	call(NR_EXIT, 0);
}

// SPDX-License-Identifier: GPL-2.0

#include <linux/mm_types.h>
#include <linux/sched.h>

#ifdef CONFIG_X86
#include <asm/vdso.h>
#endif

/*
 * The vDSO image that the current task's address space has been given, its
 * length and where it is mapped; NULL where there is none or the architecture
 * does not keep track.
 */
__rust_helper const void *rust_helper_current_vdso_image(size_t *size,
							 unsigned long *start)
{
	const void *data = NULL;

	*size = 0;
	*start = 0;
#ifdef CONFIG_X86
	if (current->mm) {
		const struct vdso_image *image = READ_ONCE(current->mm->context.vdso_image);

		if (image) {
			data = image->data;
			*size = image->size;
			*start = (unsigned long)READ_ONCE(current->mm->context.vdso);
		}
	}
#endif
	return data;
}

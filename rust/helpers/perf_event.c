// SPDX-License-Identifier: GPL-2.0

#include <linux/perf_event.h>
#include <linux/preempt.h>
#include <linux/sched.h>

#ifdef CONFIG_PERF_EVENTS
__rust_helper u32
rust_helper_perf_sample_data_size(struct perf_sample_data *data,
				  struct perf_event *event)
{
	return perf_sample_data_size(data, event);
}
#endif

__rust_helper unsigned char rust_helper_interrupt_context_level(void)
{
	return interrupt_context_level();
}

__rust_helper bool rust_helper_is_user_task(struct task_struct *task)
{
	return is_user_task(task);
}

__rust_helper void rust_helper_preempt_disable(void)
{
	preempt_disable();
}

__rust_helper void rust_helper_preempt_enable(void)
{
	preempt_enable();
}

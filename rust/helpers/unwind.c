// SPDX-License-Identifier: GPL-2.0

#include <linux/unwind_deferred.h>

#ifndef CONFIG_UNWIND_USER
__rust_helper u64 rust_helper_unwind_user_get_cookie(void)
{
	return unwind_user_get_cookie();
}

__rust_helper int
rust_helper_unwind_deferred_init(struct unwind_work *work, unwind_callback_t func)
{
	return unwind_deferred_init(work, func);
}

__rust_helper int
rust_helper_unwind_deferred_request(struct unwind_work *work, u64 *cookie)
{
	return unwind_deferred_request(work, cookie);
}

__rust_helper void rust_helper_unwind_deferred_cancel(struct unwind_work *work)
{
	unwind_deferred_cancel(work);
}
#endif

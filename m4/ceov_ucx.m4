# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# CEOV_UCX
# --------
# --with-ucx[=DIR|no]: looks for UCX's headers in DIR/include, else where the compiler
# looks. Sets the conditional and the macro HAVE_UCX, and UCX_CFLAGS. It looks for no
# library: libucp is opened at run time. Asked for and not found is an error; merely not
# found leaves UCX out.
AC_DEFUN([CEOV_UCX], [
AC_ARG_WITH([ucx],
	[AS_HELP_STRING([--with-ucx@<:@=DIR|no@:>@],
		[UCX's headers in DIR/include @<:@default: if they are there@:>@])],
	[], [with_ucx=auto])
UCX_CFLAGS=
have_ucx=no
AS_CASE([$with_ucx],
	[no|yes|auto], [],
	[UCX_CFLAGS="-isystem $with_ucx/include"])

AS_IF([test "$with_ucx" = no],
	[ceov_ucx_summary="no: not wanted (--without-ucx)"],
	[AC_MSG_CHECKING([for headers of UCX 1.13 or newer])
	 ceov_save_CPPFLAGS=$CPPFLAGS
	 CPPFLAGS="$CPPFLAGS $UCX_CFLAGS"
	 AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
		#include <ucp/api/ucp.h>
		#if UCP_API_VERSION < UCP_VERSION(1, 13)
		#error "too old"
		#endif
		]], [[return UCP_OP_ATTR_FIELD_MEMH == 0]])],
		[have_ucx=yes
		 ceov_ucx_summary=yes],
		[ceov_ucx_summary="no: no headers of UCX 1.13 or newer (Debian: libucx-dev)"])
	 CPPFLAGS=$ceov_save_CPPFLAGS
	 AC_MSG_RESULT([$have_ucx])])

AS_IF([test "$have_ucx" = yes],
	[AC_DEFINE([HAVE_UCX], [1], [1: built with UCX's headers; 0: without.])],
	[AC_DEFINE([HAVE_UCX], [0])
	 UCX_CFLAGS=
	 AS_CASE([$with_ucx], [auto|no], [],
		[AC_MSG_ERROR([--with-ucx=$with_ucx: $ceov_ucx_summary])])])
AM_CONDITIONAL([HAVE_UCX], [test "$have_ucx" = yes])
AC_SUBST([UCX_CFLAGS])
])

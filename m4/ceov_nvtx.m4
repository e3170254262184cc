# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# CEOV_NVTX
# ---------
# Behind CEOV_CUDA: looks for the headers of NVTX 3 in the CUDA toolkit, else where the compiler
# looks. Sets the conditional HAVE_NVTX, and ceov_nvtx_summary. There is no library to link: the
# headers open the one of whatever tool has started the process.
AC_DEFUN([CEOV_NVTX], [
AC_MSG_CHECKING([for headers of NVTX 3])
ceov_save_CPPFLAGS=$CPPFLAGS
ceov_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
LIBS="$LIBS -ldl"
have_nvtx=no
ceov_nvtx_summary="no: no nvtx3/nvToolsExt.h in the CUDA toolkit, so CEOVERLAP_NVTX has no effect"
AC_LINK_IFELSE([AC_LANG_PROGRAM([[
	#include <nvtx3/nvToolsExt.h>
	]], [[return nvtxDomainCreateA("x") == NULL]])],
	[have_nvtx=yes
	 ceov_nvtx_summary=yes])
CPPFLAGS=$ceov_save_CPPFLAGS
LIBS=$ceov_save_LIBS
AC_MSG_RESULT([$have_nvtx])
AM_CONDITIONAL([HAVE_NVTX], [test "$have_nvtx" = yes])
])

# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# CEOV_CUDA
# ---------
# --with-cuda[=DIR|no]: looks for nvcc in DIR/bin, else on PATH and in
# /usr/local/cuda/bin, and for cuda.h beside it. Sets the conditional and the macro
# HAVE_CUDA, and NVCC, NVCC_ARCH_FLAGS and CUDA_CFLAGS. It looks for no libcuda: the
# driver is opened at run time. Asked for and not found is an error; merely not
# found leaves GPU support out.
#
# Kernels are built for sm_90a, and as PTX for everything from sm_80 on.
AC_DEFUN([CEOV_CUDA], [
AC_ARG_WITH([cuda],
	[AS_HELP_STRING([--with-cuda@<:@=DIR|no@:>@],
		[the CUDA toolkit in DIR @<:@default: where nvcc is, if it is@:>@])],
	[], [with_cuda=auto])
AC_ARG_VAR([NVCC], [the CUDA compiler])
NVCC_ARCH_FLAGS="-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_80,code=compute_80"
CUDA_CFLAGS=
have_cuda=no
ceov_cuda_missing=

AS_CASE([$with_cuda],
	[no], [ceov_cuda_missing="not wanted (--without-cuda)"],
	[yes|auto], [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])],
	[AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
AS_IF([test -z "$ceov_cuda_missing" && test -z "$NVCC"],
	[ceov_cuda_missing="no nvcc"])

AS_IF([test -z "$ceov_cuda_missing"], [
	AC_MSG_CHECKING([for cuda.h])
	# Resolved, because nvcc is often a link into the toolkit's folder.
	ceov_cuda_bin=`readlink -f "$NVCC"`
	ceov_cuda_bin=`dirname "$ceov_cuda_bin"`
	ceov_cuda_dir=`dirname "$ceov_cuda_bin"`
	# Or a script that calls it: then it says itself where it is.
	echo > conftest.cu
	ceov_cuda_top=`$NVCC --dryrun -c conftest.cu 2>&1 | sed -n 's/^.. TOP=//p'`
	rm -f conftest.cu
	ceov_cuda_include=
	for ceov_dir in "$ceov_cuda_dir/include" \
			"$ceov_cuda_dir/targets/$host_cpu-linux/include" \
			"`dirname "$NVCC"`/../include" \
			"`readlink -f "$ceov_cuda_top"`/include"; do
		AS_IF([test -z "$ceov_cuda_include" && test -f "$ceov_dir/cuda.h"],
			[ceov_cuda_include=$ceov_dir])
	done
	AS_IF([test -z "$ceov_cuda_include"],
		[AC_MSG_RESULT([no])
		 ceov_cuda_missing="no cuda.h beside $NVCC"],
		[AC_MSG_RESULT([$ceov_cuda_include])])
	# The compiler's own folder must not be named again.
	AS_CASE([$ceov_cuda_include], [/usr/include], [],
		[CUDA_CFLAGS="-isystem $ceov_cuda_include"])
])

AS_IF([test -z "$ceov_cuda_missing"], [
	AC_MSG_CHECKING([whether nvcc compiles for sm_90a and sm_80])
	# An access of 16 bytes as kernels make it, of PTX 8.3, which is that of CUDA 12.3.
	cat > conftest.cu <<'_ACEOF'
__global__ void k(void *p)
{
	asm volatile("{.reg .b128 both; ld.relaxed.sys.b128 both, @<:@%0@:>@;}" :: "l"(p));
}
_ACEOF
	AS_IF([$NVCC $NVCC_ARCH_FLAGS -fatbin -o conftest.fatbin conftest.cu \
			>&AS_MESSAGE_LOG_FD 2>&1],
		[AC_MSG_RESULT([yes])
		 have_cuda=yes],
		[AC_MSG_RESULT([no])
		 ceov_cuda_missing="$NVCC does not compile for sm_90a and sm_80 (config.log says why; CUDA 12.3 or newer is needed)"])
	rm -f conftest.cu conftest.fatbin
])

AS_IF([test "$have_cuda" = yes],
	[ceov_cuda_summary=$NVCC
	 AC_DEFINE([HAVE_CUDA], [1], [1: built with the CUDA toolkit; 0: without.])],
	[ceov_cuda_summary="no: $ceov_cuda_missing"
	 AC_DEFINE([HAVE_CUDA], [0])
	 CUDA_CFLAGS=
	 AS_CASE([$with_cuda], [auto|no], [],
		[AC_MSG_ERROR([--with-cuda=$with_cuda: $ceov_cuda_missing])])])
AM_CONDITIONAL([HAVE_CUDA], [test "$have_cuda" = yes])
AC_SUBST([CUDA_CFLAGS])
AC_SUBST([NVCC_ARCH_FLAGS])
])

/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The live view: asks again and again, and draws. */

#include "tools/ctl/ctl.h"

#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/ctl/frame.h"
#include "tools/ctl/scene.h"

#define NS_PER_MS UINT64_C(1000000)

struct terminal {
	int            is_used;         /* input and output are a terminal */
	int            is_entered;
	struct termios before;
};

/* Set by signals: a view on a terminal has to leave that as it was. */
static volatile sig_atomic_t must_end;

static void on_signal(int number)
{
	if (number != SIGWINCH)         /* this one only ends poll() */
		must_end = 1;
}

/* A new size does not interrupt a write. What ends the view does: the terminal may be full, and
 * nobody may read. */
static void take_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGWINCH };
	struct sigaction action = { .sa_handler = on_signal };
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		action.sa_flags = numbers[i] == SIGWINCH ? SA_RESTART : 0;
		(void)sigaction(numbers[i], &action, NULL);
	}
}

/* --- the terminal ------------------------------------------------------------- */

/* Another screen without a cursor; keys come at once, and are not shown. */
static void enter(struct terminal *terminal)
{
	struct termios now;

	if (!terminal->is_used || terminal->is_entered ||
	    tcgetattr(STDIN_FILENO, &terminal->before))
		return;
	now = terminal->before;
	now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	now.c_cc[VMIN] = 0;
	now.c_cc[VTIME] = 0;
	now.c_cc[VSUSP] = _POSIX_VDISABLE;
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &now);
	fputs("\033[?1049h\033[?25l", stdout);
	terminal->is_entered = 1;
}

static void leave(struct terminal *terminal)
{
	if (!terminal->is_entered)
		return;
	fputs("\033[?25h\033[?1049l", stdout);
	(void)fflush(stdout);
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &terminal->before);
	terminal->is_entered = 0;
}

static struct frame_look look_now(void)
{
	const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
	struct frame_look look = { .n_columns = 80, .n_rows = 24 };
	struct winsize size;

	look.has_colours = !(no_colour && *no_colour) && kind && strcmp(kind, "dumb");
	look.is_utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col && size.ws_row) {
		look.n_columns = size.ws_col;
		look.n_rows = size.ws_row;
	}
	return look;
}

/* Writes the frame in one piece, so that it does not flicker. */
static int draw(const struct scene *scene)
{
	const struct frame_look look = look_now();
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return -1;
	frame_draw(out, &look, scene);
	if (!fclose(out))
		(void)fwrite(text, 1, n, stdout);
	free(text);
	return fflush(stdout);
}

/* Waits until the time, and draws anew when the window changes. Returns whether the user ends the
 * view. */
static int wait_until(const struct terminal *terminal, const struct scene *scene,
		      uint64_t until_ns)
{
	struct pollfd keys = { .fd = terminal->is_entered ? STDIN_FILENO : -1,
			       .events = POLLIN };
	uint64_t now_ns;
	char key;
	int r;

	for (now_ns = cei_now_ns(); !must_end && now_ns < until_ns; now_ns = cei_now_ns()) {
		r = poll(&keys, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
		if (r < 0 && terminal->is_entered && !must_end)
			(void)draw(scene);
		if (r > 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
			return 1;
	}
	return must_end;
}

/* --- the view ------------------------------------------------------------------- */

/* An error is shown where it stays. If the second answer is one, the view goes on. */
static struct json_object *ask(const struct ctl_ask *ask, struct terminal *terminal,
			       int *ret_status)
{
	static const struct ctl_command show_all = { "show", "daemon" };
	struct json_object *answer;

	if (terminal->is_entered && access(ask->path, F_OK))
		leave(terminal);
	answer = ctl_ask(ask->path, &show_all, ret_status);
	if (answer || !terminal->is_entered)
		return answer;
	leave(terminal);
	return ctl_ask(ask->path, &show_all, ret_status);
}

/* Shows one answer. Returns -1 if that cannot be written. */
static int show(const struct ctl_ask *ask, struct terminal *terminal, struct json_object *answer,
		const struct scene *scene)
{
	if (ask->is_json)
		printf("%s\n", json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PLAIN |
							      JSON_C_TO_STRING_NOSLASHESCAPE));
	else if (!terminal->is_used)
		frame_print(stdout, scene);
	enter(terminal);
	return terminal->is_entered ? draw(scene) : fflush(stdout);
}

static int watch(const struct ctl_ask *config, struct terminal *terminal, struct scene *scenes)
{
	/* A rate is of the time since the answer before. So frames that stay have one before the
	 * first, which is not shown. */
	uint64_t n_unseen = !config->is_json && (config->n_frames || !terminal->is_used);
	uint64_t n_asks = config->n_frames ? config->n_frames + n_unseen : UINT64_MAX;
	uint64_t n, next_ns = cei_now_ns();
	struct json_object *answer;
	struct scene *scene = NULL;
	int status = 0, r;

	for (n = 0; n < n_asks; n++) {
		answer = ask(config, terminal, &status);
		if (!answer)
			return status;
		scene_fill(&scenes[n % 2], answer, scene);
		scene = &scenes[n % 2];
		r = n < n_unseen ? 0 : show(config, terminal, answer, scene);
		json_object_put(answer);
		if (r && !must_end)
			return CTL_REFUSED;
		next_ns += config->interval_ms * NS_PER_MS;
		if (next_ns < cei_now_ns())     /* it was stopped, or the daemon was slow */
			next_ns = cei_now_ns();
		if (n + 1 != n_asks && wait_until(terminal, scene, next_ns))
			break;
	}
	return 0;
}

int ctl_monitor(const struct ctl_ask *ask)
{
	struct terminal terminal = { .is_used = !ask->is_json && isatty(STDIN_FILENO) &&
					        isatty(STDOUT_FILENO) };
	struct scene *scenes = calloc(2, sizeof(*scenes));
	int status;

	if (!scenes) {
		fprintf(stderr, "ceoverlapctl: no memory\n");
		return CTL_REFUSED;
	}
	take_signals();
	status = watch(ask, &terminal, scenes);
	if (must_end)
		clearerr(stdout);       /* a write that the signal has interrupted */
	leave(&terminal);
	free(scenes);
	return status;
}

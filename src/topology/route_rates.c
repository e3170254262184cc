/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Computes how fast several paths are at once.
 *
 * Path i, at rate r[i], has moved r[i] * (T - t0[i]) by the time T. So all bytes are moved at
 *
 *   T = (bytes + sum of r[i] * t0[i]) / (sum of r[i])
 *
 * Finding the rates with the least T, within what ports and engines can carry, is a
 * linear-fractional program. The simplex method solves it: it starts with all rates 0, adds a path
 * that would move a byte before the present T, and so lowers T until no further path helps.
 */

#include "topology/route_private.h"

#include <math.h>
#include <string.h>

#define PIVOTS_MAX 400u                 /* far more than these few paths ever needed */
#define NOTHING    1e-9                 /* smaller values are rounding errors: they count as 0 */

#define OPTIONS CEI_ROUTE_OPTIONS_MAX
#define LIMITS  CEI_ROUTE_LIMITS_MAX

/* --- the limits of paths ------------------------------------------------------------ */

static uint32_t find_limit(const struct cei_rates *rates, uint32_t key)
{
	uint32_t i;

	for (i = 0; i < rates->n_limits && rates->key[i] != key; i++)
		;
	return i;
}

/* Adds the ports and engines that a path uses to the list of limits. What the path can carry alone
 * is not among them, but in rates->rate. */
static void add_limits(struct cei_rates *rates, uint32_t path,
		       const struct cei_route_use *uses, uint32_t n)
{
	uint32_t i, at;

	for (i = 0; i < n; i++) {
		at = find_limit(rates, uses[i].key);
		if (at == rates->n_limits) {
			rates->n_limits++;
			rates->key[at] = uses[i].key;
			rates->room[at] = uses[i].room;
			memset(rates->per_rate[at], 0, sizeof(rates->per_rate[at]));
		}
		rates->per_rate[at][path] = uses[i].per_rate;
	}
}

static uint32_t n_new(const struct cei_rates *rates, const struct cei_route_use *uses,
		      uint32_t n)
{
	uint32_t i, found = 0;

	for (i = 0; i < n; i++)
		found += find_limit(rates, uses[i].key) == rates->n_limits;
	return found;
}

/* Drops limits that only one path uses: rates->rate of that path respects them already. */
static void drop_lonely(struct cei_rates *rates)
{
	uint32_t i, j, users, n = 0;

	for (i = 0; i < rates->n_limits; i++) {
		for (users = j = 0; j < rates->n; j++)
			users += rates->per_rate[i][j] > 0;
		if (users < 2)
			continue;
		rates->key[n] = rates->key[i];
		rates->room[n] = rates->room[i];
		memmove(rates->per_rate[n++], rates->per_rate[i], sizeof(rates->per_rate[i]));
	}
	rates->n_limits = n;
}

uint32_t cei_rates_init(struct cei_rates *rates, const struct cei_machine *machine,
			const struct cei_route_request *request,
			const struct cei_route_options *options)
{
	struct cei_route_use uses[CEI_ROUTE_USES_MAX];
	uint32_t i, n, set = 0;

	rates->bytes = (double)request->bytes;
	rates->n = options->n;
	rates->n_limits = 0;
	for (i = 0; i < options->n; i++) {
		rates->t0_ns[i] = options->list[i].t0_ns;
		rates->ns[i] = options->list[i].ns;
		rates->rate[i] = options->list[i].bytes_per_ns;
		n = cei_route_uses(machine, request, &options->list[i], uses);
		if (rates->n_limits + n_new(rates, uses, n) > LIMITS)
			continue;
		add_limits(rates, i, uses, n);
		set |= 1u << i;
	}
	drop_lonely(rates);
	return set;
}

/* --- simplex ----------------------------------------------------------------------- */

/*
 * Each row is an equation. It computes what is left of a limit, or the rate of the path that
 * replaced the limit in this row: at[row][n] minus the sum of at[row][j] * (the value of column
 * j). The values of all columns are 0 at present. Two more rows compute, in the same way, the sum
 * of all rates and the sum of all r[i] * t0[i].
 */
struct simplex {
	uint32_t n;                     /* columns */
	uint32_t n_limits;
	uint32_t column[OPTIONS];       /* the variable of each column: a path i, or n + limit */
	uint32_t row[LIMITS + OPTIONS]; /* the variable of each row, numbered in the same way */
	double   at[LIMITS + OPTIONS + 2][OPTIONS + 1];
};

static uint32_t sum_row(const struct simplex *simplex)
{
	return simplex->n_limits;
}

static void simplex_init(struct simplex *simplex, const struct cei_rates *rates)
{
	uint32_t i, j, n = rates->n, m = rates->n_limits;
	double most, per_rate;

	simplex->n = n;
	simplex->n_limits = m + n;
	for (j = 0; j < n; j++)
		simplex->column[j] = j;
	for (i = 0; i < m + n + 2; i++)
		memset(simplex->at[i], 0, sizeof(simplex->at[i]));
	for (i = 0; i < m; i++) {
		for (most = j = 0; j < n; j++) {
			per_rate = rates->per_rate[i][j];
			most = per_rate > most ? per_rate : most;
		}
		for (j = 0; j < n; j++)
			simplex->at[i][j] = rates->per_rate[i][j] / most;
		simplex->at[i][n] = rates->room[i] / most;
	}
	for (j = 0; j < n; j++) {
		simplex->at[m + j][j] = 1;
		simplex->at[m + j][n] = rates->rate[j];
		simplex->at[m + n][j] = -1;
		simplex->at[m + n + 1][j] = -rates->t0_ns[j];
	}
	for (i = 0; i < m + n; i++)
		simplex->row[i] = n + i;
}

/* Finds the column whose variable, if it grows, moves more bytes by the time ns. Of several it
 * takes the lowest variable, which keeps the search from going round in a circle (Bland's rule). */
static uint32_t find_column(const struct simplex *simplex, uint32_t set, double ns)
{
	const double *sum = simplex->at[sum_row(simplex)];
	const double *late = simplex->at[sum_row(simplex) + 1];
	uint32_t j, found = simplex->n;

	for (j = 0; j < simplex->n; j++) {
		if (simplex->column[j] < simplex->n && !(set >> simplex->column[j] & 1))
			continue;
		if (late[j] - sum[j] * ns <= NOTHING * ns)
			continue;
		if (found == simplex->n || simplex->column[j] < simplex->column[found])
			found = j;
	}
	return found;
}

/* Finds the row whose limit is used up first when the column's variable grows; n_limits: none. */
static uint32_t find_row(const struct simplex *simplex, uint32_t column)
{
	uint32_t i, found = simplex->n_limits;
	double ratio, least = INFINITY;

	for (i = 0; i < simplex->n_limits; i++) {
		if (simplex->at[i][column] <= NOTHING)
			continue;
		ratio = simplex->at[i][simplex->n] / simplex->at[i][column];
		if (ratio > least ||
		    (ratio == least && simplex->row[i] > simplex->row[found]))
			continue;
		least = ratio;
		found = i;
	}
	return found;
}

static void exchange(struct simplex *simplex, uint32_t row, uint32_t column)
{
	double *pivot = simplex->at[row], factor = 1 / pivot[column];
	uint32_t i, j, variable = simplex->row[row];

	pivot[column] = 1;
	for (j = 0; j <= simplex->n; j++)
		pivot[j] *= factor;
	for (i = 0; i < simplex->n_limits + 2; i++) {
		factor = simplex->at[i][column];
		if (i == row || factor == 0)
			continue;
		simplex->at[i][column] = 0;
		for (j = 0; j <= simplex->n; j++)
			simplex->at[i][j] -= factor * pivot[j];
	}
	simplex->row[row] = simplex->column[column];
	simplex->column[column] = variable;
}

static double time_of(const struct cei_rates *rates, const double *rate)
{
	double sum = 0, late = rates->bytes;
	uint32_t i;

	for (i = 0; i < rates->n; i++) {
		sum += rate[i];
		late += rate[i] * rates->t0_ns[i];
	}
	return late / sum;
}

/* Reads the present rates of all paths out of the rows. */
static void read_rates(const struct simplex *simplex, double *ret_rates)
{
	uint32_t i;

	memset(ret_rates, 0, sizeof(*ret_rates) * OPTIONS);
	for (i = 0; i < simplex->n_limits; i++)
		if (simplex->row[i] < simplex->n &&
		    simplex->at[i][simplex->n] > NOTHING)
			ret_rates[simplex->row[i]] = simplex->at[i][simplex->n];
}

double cei_rates_best(const struct cei_rates *rates, uint32_t set, double *ret_rates)
{
	struct simplex simplex;
	double ns = INFINITY, next;
	uint32_t i, column, row, n_pivots;

	for (i = 0; i < rates->n; i++)
		if ((set >> i & 1) && rates->ns[i] < ns)
			ns = rates->ns[i];
	simplex_init(&simplex, rates);
	for (n_pivots = 0; n_pivots < PIVOTS_MAX; n_pivots++) {
		column = find_column(&simplex, set, ns);
		if (column == simplex.n) {
			read_rates(&simplex, ret_rates);
			next = time_of(rates, ret_rates);
			if (!(next < ns * (1 - NOTHING)))
				break;
			ns = next;
			continue;
		}
		row = find_row(&simplex, column);
		if (row == simplex.n_limits)
			break;
		exchange(&simplex, row, column);
	}
	read_rates(&simplex, ret_rates);
	return time_of(rates, ret_rates);
}

/* --- fair shares ------------------------------------------------------------------- */

/* Divides what is left of a limit evenly among the moving paths: returns the rate that each of them
 * can reach. */
static double level_of(const struct cei_rates *rates, uint32_t limit, uint32_t moving,
		       const double *rate)
{
	double left = rates->room[limit], per_rate = 0;
	uint32_t i;

	for (i = 0; i < rates->n; i++) {
		if (moving >> i & 1)
			per_rate += rates->per_rate[limit][i];
		else
			left -= rates->per_rate[limit][i] * rate[i];
	}
	if (per_rate <= 0)
		return INFINITY;
	return left > 0 ? left / per_rate : 0;
}

static uint32_t users_of(const struct cei_rates *rates, uint32_t limit)
{
	uint32_t i, set = 0;

	for (i = 0; i < rates->n; i++)
		if (rates->per_rate[limit][i] > 0)
			set |= 1u << i;
	return set;
}

/* Raises the rates of all paths of the set together. When a limit is used up, the paths that use it
 * keep their rates, and the others grow further. */
static void share_evenly(const struct cei_rates *rates, uint32_t set, double *ret_rates)
{
	uint32_t i, stopped, moving = set;
	double level, least;

	memset(ret_rates, 0, sizeof(*ret_rates) * OPTIONS);
	while (moving) {
		least = INFINITY;
		stopped = 0;
		for (i = 0; i < rates->n_limits; i++) {
			level = level_of(rates, i, moving, ret_rates);
			if (level < least) {
				least = level;
				stopped = users_of(rates, i) & moving;
			}
		}
		for (i = 0; i < rates->n; i++) {
			if ((moving >> i & 1) && rates->rate[i] <= least) {
				least = rates->rate[i];
				stopped = 1u << i;
			}
		}
		for (i = 0; i < rates->n; i++)
			if (stopped >> i & 1)
				ret_rates[i] = least;
		moving &= ~stopped;
	}
}

double cei_rates_fair(const struct cei_rates *rates, uint32_t set, double *ret_rates)
{
	uint32_t i, late;
	double ns;

	for (;;) {
		share_evenly(rates, set, ret_rates);
		ns = time_of(rates, ret_rates);
		for (late = i = 0; i < rates->n; i++)
			if ((set >> i & 1) && rates->t0_ns[i] >= ns)
				late |= 1u << i;
		if (!late)
			return ns;
		set &= ~late;
	}
}

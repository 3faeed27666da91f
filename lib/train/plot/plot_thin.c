/* Fewer points with the same picture; see plot.h. */
#include "train/plot/plot.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>

/* The points of one column that are kept, by their index in the curve. */
struct column {
    bool any;
    size_t at; /* its number */
    size_t first, lowest, highest, last;
};

struct thinner {
    const struct ct_plot_curve *curve;
    const struct ct_plot_axis *x, *y;
    struct ct_plot_point *points;
    size_t count;
    bool gap; /* a value without a place came after the last point */
};

static struct ct_plot_point place(const struct thinner *to, size_t index)
{
    return (struct ct_plot_point){.x = ct_plot_place(to->x, to->curve->x[index]),
                                  .y = ct_plot_place(to->y, to->curve->y[index])};
}

static void add(struct thinner *to, size_t index)
{
    struct ct_plot_point point = place(to, index);

    point.after_gap = to->count == 0 || to->gap;
    to->gap = false;
    to->points[to->count++] = point;
}

static bool is_drawn(const struct ct_plot_point *point)
{
    return !isnan(point->x) && !isnan(point->y);
}

static void copy_all(struct thinner *to)
{
    for (size_t i = 0; i < to->curve->count; i++) {
        struct ct_plot_point point = place(to, i);
        if (is_drawn(&point))
            add(to, i);
        else
            to->gap = true;
    }
}

static void end_column(struct thinner *to, struct column *column)
{
    size_t inner[] = {CT_MIN(column->lowest, column->highest),
                      CT_MAX(column->lowest, column->highest)};

    if (!column->any)
        return;
    add(to, column->first);
    for (int i = 0; i < 2; i++)
        if (inner[i] != column->first && inner[i] != column->last &&
            (i == 0 || inner[0] != inner[1]))
            add(to, inner[i]);
    if (column->last != column->first)
        add(to, column->last);
    column->any = false;
}

/* A gap within a column is less than the picture shows. */
static void copy_columns(struct thinner *to, size_t columns)
{
    const double *y = to->curve->y;
    struct column column = {.any = false};
    size_t reached = 0; /* clocks may go back: columns do not */
    bool gap = false;

    for (size_t i = 0; i < to->curve->count; i++) {
        struct ct_plot_point point = place(to, i);

        if (!is_drawn(&point)) {
            gap = true;
            continue;
        }
        size_t at = CT_MIN((size_t)(point.x * (double)columns), columns - 1);
        reached = at = CT_MAX(at, reached);
        if (column.any && at != column.at) {
            end_column(to, &column);
            to->gap = gap;
        } else if (!column.any) {
            to->gap = gap;
        }
        gap = false;
        if (!column.any)
            column = (struct column){true, at, i, i, i, i};
        column.lowest = y[i] < y[column.lowest] ? i : column.lowest;
        column.highest = y[i] > y[column.highest] ? i : column.highest;
        column.last = i;
    }
    end_column(to, &column);
}

int ct_plot_thin(const struct ct_plot_curve *curve, const struct ct_plot_axis *x,
                 const struct ct_plot_axis *y, size_t columns, struct ct_plot_point **ret,
                 size_t *ret_count)
{
    bool whole = curve->count <= 4 * columns;
    size_t room = whole ? curve->count : 4 * columns;
    struct thinner to = {.curve = curve, .x = x, .y = y};

    CT_ASSERT(columns > 0);
    to.points = calloc(room + 1, sizeof *to.points);
    if (to.points == NULL)
        return CT_ENOMEM;
    if (whole)
        copy_all(&to);
    else
        copy_columns(&to, columns);
    CT_ASSERT(to.count <= room);
    *ret = to.points;
    *ret_count = to.count;
    return 0;
}

/* See screen.h. */
#include "cmd/ctrun/top/screen.h"

#include "base/assert.h"

#include <langinfo.h>
#include <locale.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>

enum { ESCAPE_MS = 25, PAIR_GOOD = 1, PAIR_WARN, PAIR_BAD, PAIR_CURVE, PAIR_TITLE, PAIR_LOST };

static struct {
    SCREEN *screen;
    bool unicode, colours;
    struct top_cell *cells;
    size_t room;
} terminal; /* curses has one, too */

static int refuse(struct ct_error *err, const char *why)
{
    return ct_error_set(err, CT_EUSAGE,
                        "%s: `ctrun status` prints the same as text, --watch again and again", why);
}

static void begin_colours(void)
{
    const char *none = getenv("NO_COLOR");

    terminal.colours = (none == NULL || none[0] == '\0') && has_colors() && start_color() == OK;
    if (!terminal.colours)
        return;
    (void)use_default_colors();
    (void)init_pair(PAIR_GOOD, COLOR_GREEN, -1);
    (void)init_pair(PAIR_WARN, COLOR_YELLOW, -1);
    (void)init_pair(PAIR_BAD, COLOR_RED, -1);
    (void)init_pair(PAIR_CURVE, COLOR_CYAN, -1);
}

int top_screen_check(struct ct_error *err)
{
    const char *type = getenv("TERM");
    int found;

    if (isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0)
        return refuse(err, "standard input and output are no terminal");
    if (type == NULL || type[0] == '\0' || strcmp(type, "dumb") == 0)
        return refuse(err, "the terminal cannot place text (TERM is unset or dumb)");
    /* newterm would leave memory behind where it fails */
    if (setupterm(type, STDOUT_FILENO, &found) != OK)
        return refuse(err, "nothing is known of the terminal that TERM names");
    (void)del_curterm(cur_term);
    return 0;
}

int top_screen_open(struct ct_error *err)
{
    (void)setlocale(LC_CTYPE, "");
    terminal.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    terminal.screen = newterm(NULL, stdout, stdin);
    if (terminal.screen == NULL)
        return refuse(err, "the terminal cannot place text");
    (void)set_term(terminal.screen);
    (void)cbreak();
    (void)noecho();
    (void)nonl();
    (void)keypad(stdscr, TRUE);
    (void)nodelay(stdscr, TRUE);
    (void)set_escdelay(ESCAPE_MS);
    (void)curs_set(0);
    begin_colours();
    return 0;
}

void top_screen_close(void)
{
    (void)endwin();
    delscreen(terminal.screen);
    free(terminal.cells);
    memset(&terminal, 0, sizeof terminal);
}

void top_screen_size(int *ret_height, int *ret_width)
{
    getmaxyx(stdscr, *ret_height, *ret_width);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int translate(int key)
{
    static const int keys[][2] = {
        {KEY_UP, TOP_KEY_UP},
        {KEY_DOWN, TOP_KEY_DOWN},
        {KEY_PPAGE, TOP_KEY_PAGE_UP},
        {KEY_HOME, TOP_KEY_HOME},
        {KEY_NPAGE, TOP_KEY_PAGE_DOWN},
        {KEY_END, TOP_KEY_END},
        {KEY_ENTER, TOP_KEY_ENTER},
        {'\r', TOP_KEY_ENTER},
        {'\n', TOP_KEY_ENTER},
        {27, TOP_KEY_ESCAPE},
        {'\t', TOP_KEY_TAB},
        {KEY_F(1), 'h'},
        {KEY_F(10), 'q'},
        {KEY_BACKSPACE, TOP_KEY_ERASE},
        {127, TOP_KEY_ERASE},
        {'\b', TOP_KEY_ERASE},
    };

    for (size_t i = 0; i < CT_COUNT(keys); i++)
        if (keys[i][0] == key)
            return keys[i][1];
    return key < KEY_MIN ? key : -1; /* another special key: nothing to us, but a key */
}

int top_screen_key(void)
{
    int key = getch();

    while (key == KEY_RESIZE)
        key = getch();
    return key == ERR ? 0 : translate(key);
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void find_look(uint8_t style, attr_t *ret_attributes, short *ret_pair)
{
    static const struct {
        attr_t attributes;
        short pair;
    } looks[TOP_STYLES] = {
        [TOP_TITLE] = {A_BOLD, 0},
        [TOP_HEAD] = {A_REVERSE, 0},
        [TOP_SELECTED] = {A_REVERSE | A_BOLD, 0},
        [TOP_STRONG] = {A_BOLD, 0},
        [TOP_DIM] = {A_DIM, 0},
        [TOP_GOOD] = {0, PAIR_GOOD},
        [TOP_WARN] = {A_BOLD, PAIR_WARN},
        [TOP_BAD] = {A_BOLD, PAIR_BAD},
        [TOP_CURVE] = {0, PAIR_CURVE},
    };

    *ret_attributes = looks[style].attributes;
    *ret_pair = (short)(terminal.colours ? looks[style].pair : 0);
}

/* Cells of one look go together. */
static void put_run(const struct top_canvas *canvas, int row, int from, int to)
{
    const struct top_cell *cells = &canvas->cells[row * canvas->width];
    wchar_t text[256];
    int count = 0;
    attr_t attributes;
    short pair;

    find_look(cells[from].style, &attributes, &pair);
    (void)attr_set(attributes, pair, NULL);
    for (int i = from; i < to; i++)
        if (cells[i].code != 0)
            text[count++] = (wchar_t)cells[i].code;
    (void)mvaddnwstr(row, from, text, count);
}

static void put_row(const struct top_canvas *canvas, int row)
{
    const struct top_cell *cells = &canvas->cells[row * canvas->width];
    int from = 0;

    for (int i = 1; i <= canvas->width; i++)
        if (i == canvas->width || cells[i].style != cells[from].style || i - from == 255) {
            put_run(canvas, row, from, i);
            from = i;
        }
}

int top_screen_show(const struct top_state *state)
{
    struct top_canvas canvas = {.unicode = terminal.unicode, .width_of = wcwidth};

    top_screen_size(&canvas.height, &canvas.width);
    size_t count = (size_t)canvas.height * (size_t)canvas.width;
    if (count > terminal.room) {
        free(terminal.cells);
        terminal.cells = calloc(count, sizeof *terminal.cells);
        terminal.room = terminal.cells != NULL ? count : 0;
    }
    if (terminal.cells == NULL)
        return CT_ENOMEM;
    canvas.cells = terminal.cells;
    top_draw(state, &canvas);
    for (int row = 0; row < canvas.height; row++)
        put_row(&canvas, row);
    (void)refresh();
    return 0;
}

/* The nodes of an embedded run: what each has beside its agent, and what the holders agree on. */
#ifndef CT_TEST_SIM_EMBEDDED_H
#define CT_TEST_SIM_EMBEDDED_H

struct sim;
struct sim_daemon;
struct fault;
struct conn;

/* Which rendezvous: as the seed says, or always one of the two. */
enum sim_mode { SIM_DRAWN, SIM_WITH_DAEMONS, SIM_EMBEDDED };

enum {
    SIM_LINKS = 32,   /* of a holder to others, those that were replaced included */
    SIM_ERAS = 1024,  /* of one run */
    SIM_TERMS = 4096, /* with a leader, likewise */
};

/* A holder's connection to another: see replica_links_uv.c. */
struct sim_link {
    uint64_t id;
    char address[CT_REPLICA_ADDRESS_BYTES];
    uint32_t conn; /* SIM_CONNS: none */
    bool is_open, was_open, wanted;
    uint64_t opened_ms, closed_ms, dial_ms, used_ms;
    struct ct_buf frame; /* of the last message, which waits for the connection */
};

/* The half of a node that holds the record, and where its agent finds the others. */
struct sim_host {
    struct sim *sim;
    uint32_t index;
    bool holds; /* the holder is there */
    struct ct_holder holder;
    char address[32];
    struct ct_endpoints endpoints;
    char endpoint[CT_ENDPOINT_TEXT]; /* that the agent tries */
    uint64_t try_until_ms;           /* ... for so long */
    bool once;                       /* ... until it is refused */
    uint32_t there;                  /* connection to the job's endpoint; SIM_CONNS: none */
    uint64_t dial_there_ms;          /* when it is dialled again; UINT64_MAX: not */
    struct sim_link links[SIM_LINKS];
    size_t link_count;

    /* The oracle's observations at its last event. */
    const struct ct_replica *replica;
    uint64_t era;
    uint32_t record;    /* which it holds or waits for; 0: none */
    uint64_t committed; /* its log up to here was compared */
    uint64_t started_ms, led_ms;
    uint64_t unled_ms; /* it votes, and has known of no leader since; 0: it does */
    bool ordered;      /* an operator, who is right, has told it to take over */
    uint64_t asked_ms; /* when a node that was in a round last came to it */
    bool serves;
    uint64_t voters_as_of;               /* index of the log's last entry when these were read */
    uint64_t others[CT_REPLICA_SERVERS]; /* the other voters, as it knew them */
    size_t other_count;
};

/* An entry that some replica took as committed. */
struct agreed {
    uint64_t term, hash;
    bool known;
};

/* A record from its founding to the death of all who hold it, across eras. */
struct record {
    struct agreed *list; /* by index */
    size_t room;
    uint64_t last; /* index of the last */
    uint64_t newest_era;
    uint64_t partial_era;            /* whose first leader had what a minority held */
    uint64_t last_term, last_leader; /* the last that was elected */
    uint64_t reserved, committed;    /* generations of which it has the entry */
    uint64_t published_step;
    bool closed;
};

struct agreement {
    struct record records[SIM_ERAS];
    uint32_t record_count;   /* from 1 on */
    uint32_t record;         /* that the oracle follows */
    uint64_t rosters;        /* the highest generation of a ROUND that its nodes were told */
    uint64_t eras[SIM_ERAS]; /* and the record of each */
    uint32_t era_record[SIM_ERAS];
    uint32_t era_count;
    struct {
        uint64_t era, term, id;
    } leaders[SIM_TERMS];
    uint32_t leader_count;
    uint64_t disturbed_ms; /* when a fault last began or ended, or somebody began to lead */
    bool waits;            /* it ended in a way in which nodes wait for ever */
};

/* ---- embedded.c ---- */

/* A ctrun starts: at the job's endpoint (node 0) it founds a record. */
void sim_host_start(struct sim *sim, uint32_t index);
void sim_host_end(struct sim *sim, uint32_t index);

/* The agent has left, and others can do without its holder: it asks one of them to lead. */
void sim_host_yield(struct sim *sim, uint32_t index);

/* What the holder owes to the others when its node has left. */
enum ct_holder_duty sim_host_duty(struct sim *sim, uint32_t index);

/* The agent has ended: others may take the lead. */
void sim_host_stop(struct sim *sim, uint32_t index);
void sim_host_tick(struct sim *sim, uint32_t index);
uint64_t sim_host_deadline(const struct sim *sim, uint32_t index); /* by its clock */

/* VOTERS came to its agent. */
void sim_host_voters(struct sim *sim, uint32_t index, const struct ct_msg_voters *voters);

/* Does somebody listen on that port of the node? */
bool sim_host_listens(const struct sim *sim, uint32_t index, uint32_t port);
void sim_host_opened(struct sim *sim, struct conn *conn);
void sim_host_message(struct sim *sim, struct conn *conn, const struct ct_message *message);
void sim_host_closed(struct sim *sim, struct conn *conn, bool silent);
void sim_host_order(struct sim *sim, uint8_t verb, uint32_t node);
int sim_host_take_over(struct sim *sim, uint32_t index); /* `ctrun takeover` there: the answer */

/* After each call into the holder. */
void sim_host_after(struct sim *sim, uint32_t index);

/* ---- links.c ---- */
void sim_links_want(struct sim *sim, uint32_t index, const struct ct_replica_server *list,
                    size_t count);
void sim_links_send(struct sim *sim, uint32_t index, uint64_t id, const char *address,
                    const struct ct_message *message);
void sim_links_tick(struct sim *sim, uint32_t index);
void sim_links_end(struct sim *sim, uint32_t index);
uint64_t sim_links_deadline(const struct sim_host *host);
void sim_endpoint_dial(struct sim *sim, uint32_t index);
void sim_endpoint_leave(struct sim *sim, uint32_t index);
void sim_endpoint_answers(struct sim *sim, const struct conn *conn,
                          const struct ct_message *message);
void sim_agent_connect(struct sim *sim, uint32_t index, uint64_t give_up_ms);
void sim_agent_dial_again(struct sim *sim, uint32_t index);

/* What becomes of connection `index`, of that kind, at the node that dialled it. */
void sim_dialled_opened(struct sim *sim, uint32_t index);
void sim_dialled_failed(struct sim *sim, uint32_t node, uint32_t index, bool refused);
void sim_dialled_closed(struct sim *sim, uint32_t index, bool silent);

/* ---- agreement.c ---- */

/* The holder of the node has taken an event. */
void agreement_look(struct sim *sim, uint32_t index);

/* It sends this to a node: what it tells must be agreed on. */
void agreement_sends(struct sim *sim, uint32_t index, const struct ct_message *message);

/* Is it the newest leader of the record that the oracle follows? */
bool agreement_is_newest(const struct sim *sim, const struct sim_daemon *daemon);

void agreement_disturb(struct sim *sim);
void agreement_free(struct sim *sim);

/* ---- quorum.c ---- */

/* Do so many of those who hold the record live that one of them must lead? */
bool agreement_can_lead(struct sim *sim);
bool agreement_lives(struct sim *sim, uint32_t record);
bool agreement_is_behind(struct sim *sim, uint32_t index);

/* The living holder of the record that knows most of it; NULL: none. */
struct sim_host *agreement_newest(struct sim *sim);

/* The living holder with that id; NULL: its process is dead. */
struct sim_host *agreement_holder_with(struct sim *sim, uint64_t id);

/* ---- takeover.c ---- */

/* After the faults: an operator's `ctrun takeover`, refused where the job lives. */
void sim_take_over(struct sim *sim);

/* ---- embedded_faults.c ---- */
bool sim_embedded_fault_begin(struct sim *sim, struct fault *fault);
bool sim_embedded_fault_end(struct sim *sim, struct fault *fault);

#endif

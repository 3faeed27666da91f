/* The model that a configuration asks for. */
#ifndef CT_TRAINER_MODEL_H
#define CT_TRAINER_MODEL_H

#include "config/config.h"
#include "data/dataset.h"
#include "graph/model.h"

/* Ids in a sample; 0 for models of features. */
int64_t ct_model_context(const struct ct_config *cfg);

/* The vocabulary that the configuration gives; 0: what the data have. */
int64_t ct_model_vocabulary(const struct ct_config *cfg);

/* For samples as `train` has them. Lists are the configuration's. */
struct ct_model_spec ct_model_of(const struct ct_config *cfg, const struct ct_dataset *train);

#endif

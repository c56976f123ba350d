/* Anomaly detection: calibrated scores of rows, alarms and episodes (kbnn.model.anomaly). */
#ifndef KB_ANOMALY_H
#define KB_ANOMALY_H

#include <stdint.h>

enum { KB_STATISTICS = 6, KB_SIDES = 9, KB_SIDE_FIELDS = 13, KB_COMPONENTS = 7 };
enum { KB_WINDOWS = 4, KB_WINDOW_ROWS = 50, KB_SEASON_FIELDS = 10, KB_RUN_BUCKETS = 12 };
enum { KB_SCALARS = 27, KB_DETECTOR_INPUTS = 5, KB_DETECTOR_OUTPUTS = 6 };

/* As kbnn.model.anomaly_reference.list_constants lists them. */
typedef struct {
    double memory_rows, calibrated_rows, top_share, cluster_share, far_values;
    double least_extremal_index;
    double cluster_memory, shape_factor, most_shape, evidence_cap, repeat_floor, repeat_bet;
    double run_memory, quiet_rows, shift_rows, unusual_nats, shift_sd, shift_share, wide_rms;
    double change_rows, change_sd, change_share;
    double weights[KB_COMPONENTS];
} kb_detector_constants;

/* The arrays of kbnn.model.anomaly_reference.DetectorState. */
typedef struct {
    const kb_detector_constants *k;
    int64_t capacity, season_slots;
    double *history, *counts, *tails, *windows, *season, *runs, *scalars;
} kb_detector;

void kb_detect_anomalies(const kb_detector *d, const double *rows, int64_t n, double threshold,
                         double *out);

#endif

/* The machine's own limit: one pass over n doubles of covariance, each read and written once with
 * the three multiply-adds that an update and a product ask of it, and nothing else. */

#if defined(__AVX512F__)
typedef double vec __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef double vec __attribute__((vector_size(32)));
#else
typedef double vec __attribute__((vector_size(16)));
#endif

enum { ROWS = 4 };

double limit_pass(vec *p, long n, const double *u, long repeats)
{
    long vectors = n / (long)(sizeof(vec) / sizeof(double));
    vec product[ROWS] = {{0}}, mirrored[ROWS] = {{0}}, across = {0};
    across += u[4];
    for (long r = 0; r < repeats; r++)
        for (long i = 0; i + ROWS <= vectors; i += ROWS)
            for (int k = 0; k < ROWS; k++) {
                vec c = p[i + k] - across * u[k];
                p[i + k] = c;
                product[k] += c * across;
                mirrored[k] += c * u[k];
            }
    double total = 0.0;
    for (int k = 0; k < ROWS; k++)
        total += product[k][0] + mirrored[k][0];
    return total;
}

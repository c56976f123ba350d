/* The machine's own limit: one pass over n doubles of covariance, each read and written once with
 * the three multiply-adds that an update and a product ask of it, and nothing else. */

enum { LANES = 64 };

double limit_pass(double *p, long n, const double *u, long repeats)
{
    double product[LANES] = {0}, mirrored[LANES] = {0}, total = 0.0;
    for (long r = 0; r < repeats; r++)
        for (long i = 0; i + LANES <= n; i += LANES)
            for (int k = 0; k < LANES; k++) {
                double c = p[i + k] - u[k] * u[0];
                p[i + k] = c;
                product[k] += c * u[k];
                mirrored[k] += c * u[1];
            }
    for (int k = 0; k < LANES; k++)
        total += product[k] + mirrored[k];
    return total;
}

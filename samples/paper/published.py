"""The paper's numbers, as printed: mean ± standard deviation over its ten runs.

Wagner, Wu and Huber, "Kalman Bayesian Neural Networks for Closed-form Online Learning", AAAI-23.
RMSE and NLL are on test data, in the units of the target; times are seconds for the whole
training on an Intel i7-8850H. Naval's spread of PBP is printed as 6.12e-5.
"""

from typing import NamedTuple


class Figure(NamedTuple):
    """A number of the paper; a spread of None where it prints none."""

    mean: float
    spread: float | None = None


Table = dict[str, dict[str, Figure]]


def _read(columns: str, rows: str) -> Table:
    """Rows of "name mean±spread ..." as row name -> column name -> figure; NA is left out."""
    heads = columns.split()
    table: Table = {}
    for line in rows.strip().splitlines():
        name, *cells = line.split()
        table[name] = {
            head: Figure(*map(float, cell.split("±")))
            for head, cell in zip(heads, cells, strict=True)
            if cell != "NA"
        }
    return table


#: Rows and inputs of each UCI set, in the order of the paper.
SIZES: dict[str, tuple[int, int]] = {
    "boston": (506, 13),
    "concrete": (1_030, 8),
    "energy": (768, 8),
    "wine": (4_898, 11),
    "naval": (11_934, 16),
    "yacht": (308, 6),
    "kin8nm": (8_192, 8),
    "power": (9_568, 4),
    "year": (515_345, 90),
}

_METHODS = "SVI MCMC PBP KBNN1 KBNN10"

RMSE = _read(
    _METHODS,
    """
    boston     3.434±0.131    2.553±0.027    2.740±0.095    3.893±0.200    2.695±0.155
    concrete   7.597±0.283    6.227±0.108    5.874±0.054    8.396±0.497    5.703±0.183
    energy     4.025±0.074    0.906±0.049    3.274±0.049    4.155±0.087    2.404±0.259
    wine       0.726±0.007    0.656±0.004    0.667±0.002    0.719±0.011    0.666±0.006
    naval      0.025±0.012    0.008±0.001  0.006±0.0000612    0.034±0.005    0.004±0.001
    yacht      1.157±0.222    0.879±0.294    0.867±0.047    3.752±0.240    1.584±0.178
    kin8nm     0.101±0.002    0.081±0.003    0.100±0.003    0.174±0.006    0.110±0.005
    power      4.419±0.046  287.227±200.167    4.060±0.009    4.243±0.011    4.167±0.034
    year      25.163±1.990             NA    8.879±0.004    8.887±0.014    8.874±0.015
    """,
)

NLL = _read(
    _METHODS,
    """
    boston     2.690±0.041    2.346±0.010    2.421±0.037    3.183±0.046    2.767±0.392
    concrete   3.446±0.042    3.236±0.024    3.119±0.010    3.676±0.119    8.428±0.946
    energy     2.877±0.026    1.315±0.179    2.680±0.020    3.078±0.015    2.394±0.159
    wine       1.107±0.011    1.003±0.006    1.014±0.002    1.529±0.202    1.127±0.122
    naval     -1.817±0.179   -3.424±0.091   -3.736±0.021    1.266±0.255    0.128±0.008
    yacht      1.435±0.336    1.649±0.457    1.558±0.036    3.033±0.022    2.325±0.055
    kin8nm    -0.869±0.026   -1.094±0.034   -0.882±0.026   -0.255±0.139   -0.758±0.043
    power      3.162±0.071  598.460±422.969    2.820±0.002    3.062±0.040    2.922±0.015
    year       6.801±0.765             NA    3.588±0.001    4.638±0.219    4.315±0.116
    """,
)

SECONDS = _read(
    _METHODS,
    """
    boston            21.4          446.0            8.2            0.8            8.7
    concrete          22.5          481.7           12.7            1.7           17.5
    energy            21.6          405.9           10.2            1.2           13.2
    wine              23.8          520.3           49.1            8.3           86.7
    naval             42.8          367.0          116.1           20.5          205.3
    yacht             21.5          357.4            5.9            0.5            5.0
    kin8nm            57.6         1200.0          107.9           20.2          204.0
    power             56.6          769.9           93.4           20.0          208.6
    year            5419.7             NA         5694.9         2021.7        20801.8
    """,
)

#: One pass, averaged over all sets, fifty hidden units.
MILLISECONDS_PER_ROW = Figure(1.659, 0.041)

#: Moon: rows seen -> accuracy in percent, NLL, seconds.
MOON = _read(
    "accuracy nll seconds",
    """
    5       47.53±0.60   0.18±0.02      0.01±0.0004
    50      88±1.63      0.11±0.01      0.13±0.0012
    500     92.07±2.28   0.05±0.01      1.25±0.00353
    1000    97.87±2.33   0.03±0.0036    2.49±0.00813
    1350    99.93±0.20   0.03±0.00343   3.40±0.00572
    """,
)

#: Ten passes, hidden layers of ten units each: the column is the number of layers.
_LAYERS = "1 2 3 4"

LAYERS_RMSE = _read(
    _LAYERS,
    """
    boston     3.085±0.058    2.937±0.267    2.935±0.275    3.598±0.240
    concrete   6.656±0.231    5.707±0.233    5.727±0.363    6.180±0.447
    energy     2.849±0.459    2.151±0.131    2.742±0.496    3.791±0.422
    wine       0.682±0.006    0.678±0.007    0.689±0.006    0.733±0.041
    naval      0.003±0.001    0.004±0.002    0.006±0.004    0.008±0.004
    yacht      1.262±0.180    1.120±0.111    1.511±0.182    4.115±0.418
    """,
)

LAYERS_NLL = _read(
    _LAYERS,
    """
    boston    28.661±4.692    6.984±1.460    2.643±0.211    3.788±0.315
    concrete  28.411±4.384    6.663±2.945    4.386±0.603    4.227±0.807
    energy    17.486±9.349    2.893±0.592    2.648±0.383    2.984±0.308
    wine      11.677±3.467    2.822±1.022    1.249±0.175    1.530±0.284
    naval     -1.025±0.356   -0.623±0.369   -0.213±1.027   -0.479±0.632
    yacht      2.898±0.720    1.200±0.102    2.285±0.142    4.461±0.038
    """,
)

LAYERS_SECONDS = _read(
    _LAYERS,
    """
    boston     6.978±0.151   11.665±0.244   16.348±0.512   23.239±3.872
    concrete  12.718±0.066   20.695±0.094   28.416±0.088   39.399±1.855
    energy     9.515±0.041   15.417±0.044   21.104±0.082   27.068±0.087
    wine      60.119±0.325   97.037±0.069  133.110±0.335  171.018±0.605
    naval    179.523±3.820  298.670±3.466  420.540±1.454  484.847±1.845
    yacht      4.118±0.069    6.451±0.083    8.817±0.053   11.136±0.054
    """,
)

#: Ten passes, one hidden layer: the column is the number of its units.
_NEURONS = "10 50 100 200"

NEURONS_RMSE = _read(
    _NEURONS,
    """
    boston     3.085±0.058    2.695±0.155    2.766±0.093    2.840±0.159
    concrete   6.656±0.231    5.703±0.183    6.428±0.157    6.441±0.226
    energy     2.849±0.459    2.404±0.259    3.008±0.255    3.404±0.167
    wine       0.682±0.006    0.666±0.006    0.673±0.007    0.692±0.009
    naval      0.003±0.001    0.004±0.002    0.010±0.002    0.030±0.004
    yacht      1.262±0.180    1.584±0.178    1.662±0.285    2.586±0.295
    """,
)

NEURONS_NLL = _read(
    _NEURONS,
    """
    boston    28.661±4.692    2.767±0.392    3.036±0.029    3.649±0.025
    concrete  28.411±4.384    8.428±0.946    3.269±0.051    3.402±0.037
    energy    17.486±9.349    2.394±0.159    2.899±0.014    3.453±0.019
    wine      11.677±3.467    1.127±0.122    1.377±0.219    2.500±0.100
    naval     -1.025±0.356    0.128±0.282    1.002±0.100    2.026±0.198
    yacht      2.898±0.720    2.325±0.055    2.925±0.026    3.501±0.006
    """,
)

NEURONS_SECONDS = _read(
    _NEURONS,
    """
    boston     6.978±0.151    8.679±0.326   10.208±1.038   10.331±0.412
    concrete  12.718±0.066   17.538±0.433   18.459±0.085   20.080±0.252
    energy     9.515±0.041   13.224±0.167   13.569±0.217   15.103±0.308
    wine      60.119±0.325   86.733±0.886   90.346±1.301   99.994±0.775
    naval    179.523±3.820  205.297±3.397  221.817±1.377  244.877±0.815
    yacht      4.118±0.069    4.955±0.277    5.557±0.139    6.259±0.306
    """,
)

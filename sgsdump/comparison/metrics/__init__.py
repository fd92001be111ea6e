"""The metrics of a comparison, one file per formula; ``base.py`` is the contract.

mse, cos and rmse are printed always. The next eight are those of the SDAA dump tools, ten more those of msaccucmp,
the last six those that users know from Polygraphy and onnxruntime.
Four formulas have two names each, under which either tool prints them: such aliases stand in one file.
"""

from sgsdump.registry import Registry

_HERE = "sgsdump.comparison.metrics."
METRICS = Registry(
    "metric",
    {
        "mse": _HERE + "mse:MSE",
        "cos": _HERE + "cos:COS",
        "rmse": _HERE + "rmse:RMSE",
        "diff1": _HERE + "rmse:DIFF1",
        "diff2": _HERE + "relative_euclidean_distance:DIFF2",
        "diff3_max": _HERE + "diff3_max:DIFF3_MAX",
        "diff3_mean": _HERE + "diff3_mean:DIFF3_MEAN",
        "all_close": _HERE + "all_close:ALL_CLOSE",
        "nan_inf": _HERE + "nan_inf:NAN_INF",
        "mae": _HERE + "mean_absolute_error:MAE",
        "mape": _HERE + "mape:MAPE",
        "CosineSimilarity": _HERE + "cos:COSINE_SIMILARITY",
        "MaxAbsoluteError": _HERE + "max_absolute_error:MAX_ABSOLUTE_ERROR",
        "AccumulatedRelativeError": _HERE + "accumulated_relative_error:ACCUMULATED_RELATIVE_ERROR",
        "RelativeEuclideanDistance": _HERE + "relative_euclidean_distance:RELATIVE_EUCLIDEAN_DISTANCE",
        "KullbackLeiblerDivergence": _HERE + "kullback_leibler_divergence:KULLBACK_LEIBLER_DIVERGENCE",
        "StandardDeviation": _HERE + "standard_deviation:STANDARD_DEVIATION",
        "MeanAbsoluteError": _HERE + "mean_absolute_error:MEAN_ABSOLUTE_ERROR",
        "RootMeanSquareError": _HERE + "root_mean_square_error:ROOT_MEAN_SQUARE_ERROR",
        "MaxRelativeError": _HERE + "max_relative_error:MAX_RELATIVE_ERROR",
        "MeanRelativeError": _HERE + "mean_relative_error:MEAN_RELATIVE_ERROR",
        "sqnr": _HERE + "sqnr:SQNR",
        "psnr": _HERE + "psnr:PSNR",
        "median_error": _HERE + "error_quantiles:MEDIAN_ERROR",
        "error_p99": _HERE + "error_quantiles:ERROR_P99",
        "top1": _HERE + "top_k:TOP1",
        "top5": _HERE + "top_k:TOP5",
    },
)

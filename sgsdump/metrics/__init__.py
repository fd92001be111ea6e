"""The metrics of a comparison, one file each; ``sgsdump/metric.py`` is the contract.

mse, cos and rmse are printed always. The next eight are those of the SDAA dump tools, the last ten those of msaccucmp.
"""

from sgsdump.family import Family

METRICS = Family(
    "metric",
    {
        "mse": "sgsdump.metrics.mse:MSE",
        "cos": "sgsdump.metrics.cos:COS",
        "rmse": "sgsdump.metrics.rmse:RMSE",
        "diff1": "sgsdump.metrics.diff1:DIFF1",
        "diff2": "sgsdump.metrics.diff2:DIFF2",
        "diff3_max": "sgsdump.metrics.diff3_max:DIFF3_MAX",
        "diff3_mean": "sgsdump.metrics.diff3_mean:DIFF3_MEAN",
        "all_close": "sgsdump.metrics.all_close:ALL_CLOSE",
        "nan_inf": "sgsdump.metrics.nan_inf:NAN_INF",
        "mae": "sgsdump.metrics.mae:MAE",
        "mape": "sgsdump.metrics.mape:MAPE",
        "CosineSimilarity": "sgsdump.metrics.cosine_similarity:COSINE_SIMILARITY",
        "MaxAbsoluteError": "sgsdump.metrics.max_absolute_error:MAX_ABSOLUTE_ERROR",
        "AccumulatedRelativeError": "sgsdump.metrics.accumulated_relative_error:ACCUMULATED_RELATIVE_ERROR",
        "RelativeEuclideanDistance": "sgsdump.metrics.relative_euclidean_distance:RELATIVE_EUCLIDEAN_DISTANCE",
        "KullbackLeiblerDivergence": "sgsdump.metrics.kullback_leibler_divergence:KULLBACK_LEIBLER_DIVERGENCE",
        "StandardDeviation": "sgsdump.metrics.standard_deviation:STANDARD_DEVIATION",
        "MeanAbsoluteError": "sgsdump.metrics.mean_absolute_error:MEAN_ABSOLUTE_ERROR",
        "RootMeanSquareError": "sgsdump.metrics.root_mean_square_error:ROOT_MEAN_SQUARE_ERROR",
        "MaxRelativeError": "sgsdump.metrics.max_relative_error:MAX_RELATIVE_ERROR",
        "MeanRelativeError": "sgsdump.metrics.mean_relative_error:MEAN_RELATIVE_ERROR",
    },
)

"""What a tensor is: metadata, element types, layouts, statistics. numpy only."""

"""What ONNX's reference evaluator computes wrong, put right."""

//! What the product keeps when it is killed, cut off from power or refused by its disk: load from
//! outside, the fault, and the judgement of the recorded history. It never looks inside the product.

package history

import "context"

// All calls take with all records, one segment after the other. The segments of sources that are
// kept for another time overlap with the others.
func (r *Reader) All(ctx context.Context, in Span, take func(record any)) error {
	for i := range r.parts {
		if !r.parts[i].overlaps(in) {
			continue
		}
		if err := r.read(ctx, &r.parts[i], nil, inSpan(in, take)); err != nil {
			return err
		}
	}
	return nil
}

// Package wire decodes what an API server sends: lists page by page, and watches event by event.
//
// Nothing here builds a map of an object. A [Stream] cuts the response into JSON values, each value
// is checked once, a [Decoder] cuts out what the [Format] does not keep, and the rest stays the
// text that it is ([event.Object]). An object that cannot be read becomes an [ObjectError], or a
// [Placeholder] where its identity is known, and the response goes on behind it.
package wire

// Package wire decodes the responses of an API server: lists page by page, and watches event by
// event.
//
// It builds no map of an object. A [Stream] cuts the response into JSON values, each value is
// checked once, a [Decoder] removes the fields that the [Format] does not keep, and the rest stays
// text ([event.Object]). An object that cannot be read becomes an [ObjectError], or a [Placeholder]
// if its identity is known, and decoding continues behind it.
package wire

require('./busy.js')(function ranked() {});
